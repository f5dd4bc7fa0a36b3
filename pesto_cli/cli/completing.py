"""Shell completion: the files, by their endings, and the names that a shell offers at TAB.

No heavy package is loaded, see `choices.py`.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)

from pesto_cli.cli.choices import SOLVERS, SOURCES, STRATEGIES, Choices
from pesto_cli.cli.command_line import TypedWord, typed_words

LIVE_MACHINES = ("local-workers:2", "local-gpus")
GRAPHS = (".meta", ".pb", ".pbtxt")
PLACEMENTS = (".placement.json",)

# Returns candidates for a parameter, given the parameters before it and the letters typed so far.
Completer = Callable[[click.Context, str], Iterable[str]]


def names(*known: str) -> Completer:
    """Return a completer with these names."""
    return lambda context, typed: known


def one_of(choices: Choices) -> Completer:
    """Return a completer with the names of a registry, including those of plug-ins."""
    return lambda context, typed: choices.names()


def several(choices: Choices, *more: str) -> Completer:
    """Return a completer of a list `A,B,...` of names without repetition."""

    def candidates(context: click.Context, typed: str) -> Iterable[str]:
        given, comma, _ = typed.rpartition(",")
        known = (*more, *choices.names())
        return (f"{given}{comma}{name}" for name in known if name not in given.split(","))

    return candidates


def files(*endings: str) -> Completer:
    """Return a completer with the files of these endings and the folders next to them.

    Without such a file it has no candidates, even if there are folders.
    """

    def candidates(context: click.Context, typed: str) -> Iterable[str]:
        folder, start = os.path.split(typed)
        try:
            entries = [*os.scandir(os.path.expanduser(folder) or ".")]
        except OSError:
            return []
        if not start:
            entries = [each for each in entries if not each.name.startswith(".")]
        entries = [each for each in entries if each.name.startswith(start)]
        found = [each.name for each in entries if each.is_file() and each.name.endswith(endings)]
        folders = [f"{each.name}/" for each in entries if each.is_dir()]
        return [os.path.join(folder, name) for name in sorted(found + folders)] if found else []

    return candidates


def either(*completers: Completer) -> Completer:
    """Return a completer with the candidates of several."""
    return lambda context, typed: (item for each in completers for item in each(context, typed))


def presets(context: click.Context, typed: str) -> Iterable[str]:
    """Return the names of machine presets."""
    from pesto_cli.data.presets import PRESETS

    return PRESETS


def models(context: click.Context, typed: str) -> Iterable[str]:
    """Return the names of zoo models; after an `@`, the keys of further arguments."""
    from pesto_cli.zoo import MODELS, argument_keys

    if "@" not in typed:
        return (f"zoo:{name}" for name in MODELS)
    begun = max(typed.rfind("@"), typed.rfind(","))
    name = typed[:begun].removeprefix("zoo:")
    return (f"{typed[: begun + 1]}{key}=" for key in argument_keys(name))


def ops(context: click.Context, typed: str) -> Iterable[str]:
    """Return the ops of the given profile and placement, one scope further than what is typed.

    The placement has the parts of ops that it splits.
    """
    from pesto_cli.cli.activity import without_warnings
    from pesto_cli.errors import PestoError
    from pesto_cli.files import read_placement, read_profile

    known = set[str]()
    with suppress(KeyError, PestoError):
        known.update(read_profile(context.params["profile"]).problem.graph.names)
        with without_warnings("pesto_cli"):  # they would disturb the line that is typed
            known.update(read_placement(context.params["placement"]).names)
    done = len(typed)
    within = (name for name in known if name.startswith(typed))
    return sorted({name[: name.find("/", done) + 1] or name for name in within})


# By parameter, or by command and parameter.
COMPLETERS: Mapping[str, Completer] = {
    "profile": files(".profile.json", ".profile.json.gz"),
    "profiles": files(".profile.json", ".profile.json.gz"),
    "placement": files(*PLACEMENTS),
    "placements": files(*PLACEMENTS),
    "first": files(*PLACEMENTS),
    "second": files(*PLACEMENTS),
    "warm_start": files(*PLACEMENTS),
    "weights": files(".npz"),
    "graph": files(*GRAPHS),
    "run graph": files(*GRAPHS, ".py"),
    "check graph": either(models, files(*GRAPHS, ".py")),
    "place source": either(models, files(*GRAPHS, ".py")),
    "export source": either(models, files(*GRAPHS, ".py")),
    "profile source": one_of(SOURCES),
    "machine": either(presets, names(*LIVE_MACHINES), files(".toml")),
    "run machine": either(names(*LIVE_MACHINES), files(".toml")),
    "tune graph": files(*GRAPHS, ".py"),
    "tune machine": either(names(*LIVE_MACHINES), files(".toml")),
    "log": files(".tuning.json", ".tuning.json.gz"),
    "comm machine": either(names(*LIVE_MACHINES), files(".toml")),
    "cluster": files(".toml"),
    "constraints": files(".toml"),
    "comm": files(".comm.json"),
    "samples": files(".csv"),
    "strategy": one_of(STRATEGIES),
    "strategies": several(STRATEGIES, "all"),
    "compare": either(several(STRATEGIES), files(*PLACEMENTS)),
    "solver": one_of(SOLVERS),
    "op": ops,
}


class CompletedType(click.ParamType):  # type: ignore[type-arg]
    """A parameter type with a completer; for a path without candidates the shell offers files."""

    def __init__(self, type_: Any, completer: Completer) -> None:
        self.name, self._type, self._completer = type_.name, type_, completer

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert as the type does."""
        return self._type.convert(value, param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the candidates that begin with the typed letters."""
        found = [item for item in self._completer(ctx, incomplete) if item.startswith(incomplete)]
        if found or not isinstance(self._type, click.Path):
            return [CompletionItem(item) for item in found]
        return [CompletionItem(incomplete, type="file")]


def add_completers(command: click.Command) -> None:
    """Add completers to the parameters of a command, or of all commands of a group."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            add_completers(each)
    for param in command.params:
        name = f"{command.name} {param.name}"
        completer = COMPLETERS.get(name, COMPLETERS.get(str(param.name)))
        if completer is not None and not isinstance(param.type, CompletedType):
            param.type = CompletedType(param.type, completer)


class FilteredCompletion(ShellComplete):
    """Shell completion without values that a shell would misread."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """Return click's completions without control characters and without values like options.

        The shells read one value a line. Options are offered only after a typed `-`.
        """
        found = super().get_completions(args, incomplete)
        may_begin_with_dash = incomplete.startswith("-") or "--" in args
        return [
            item
            for item in found
            if item.value.isprintable() and (may_begin_with_dash or item.value[:1] != "-")
        ]


@add_completion_class
class Bash(FilteredCompletion, BashComplete):
    """Completion in bash, which does not quote what it inserts: values are quoted here.

    Bash ends a word at `:`, so that click would get `zoo:RNN` in parts. So the line is split here.
    """

    source_template = r"""
%(complete_func)s() {
    local typed=${COMP_LINE:0:COMP_POINT} type value
    COMPREPLY=()
    while IFS=, read -r type value; do
        if [[ $type == plain ]]; then
            COMPREPLY+=("$value")
            [[ $value == *[/:=] ]] && compopt -o nospace 2>/dev/null
        else
            compopt -o default 2>/dev/null
        fi
    done < <(COMP_WORDS=$typed COMP_WORDBREAKS=$COMP_WORDBREAKS \
        %(complete_var)s=bash_complete "$1")
    return 0
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the cursor's word, and the cursor's word."""
        words, typed = self._typed()
        return words[1:], typed.text

    def format_completion(self, item: CompletionItem) -> str:
        """Return the type of an item and the text that bash inserts, as `type,text`."""
        value = self._typed()[1].completed(item.value) if item.type == "plain" else item.value
        return f"{item.type},{value}"

    def _typed(self) -> tuple[list[str], TypedWord]:
        return typed_words(os.environ["COMP_WORDS"], os.environ.get("COMP_WORDBREAKS", ""))


@add_completion_class
class Zsh(FilteredCompletion, ZshComplete):
    """Completion in zsh, which quotes the values itself.

    Zsh runs the whole file of a function from `fpath` at every TAB. click's script completes only
    at the first one, so its condition is replaced.
    """

    source_template = ZshComplete.source_template.replace(
        "$zsh_eval_context[-1] == loadautofunc", '"$funcstack[1]" == _%(prog_name)s'
    )


@add_completion_class
class Fish(FilteredCompletion, FishComplete):
    """Completion in fish, which quotes the values itself.

    A line is split at its first comma only, because values and descriptions may have commas.
    """

    source_template = r"""
function %(complete_func)s
    set -l response (env %(complete_var)s=fish_complete COMP_WORDS=(commandline -cp) %(prog_name)s)
    for completion in $response
        set -l parts (string split -m 1 "," -- $completion)
        switch $parts[1]
            case dir
                __fish_complete_directories $parts[2]
            case file
                __fish_complete_path $parts[2]
            case plain
                printf '%%s\n' $parts[2]
        end
    end
end

complete --no-files --command %(prog_name)s --arguments "(%(complete_func)s)"
"""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the cursor's word, and the cursor's word."""
        words, typed = typed_words(os.environ["COMP_WORDS"])
        return words[1:], typed.text
