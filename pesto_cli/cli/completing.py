"""What the shell offers at TAB: files by their endings, and names.

Nothing heavy is loaded, see `choices.py`.
"""

import os
from collections.abc import Callable, Iterable, Mapping
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

# What begins with the letters typed so far, in the context of the parameters before them.
Offers = Callable[[click.Context, str], Iterable[str]]


def names(*known: str) -> Offers:
    """Some names."""
    return lambda context, typed: known


def one_of(choices: Choices) -> Offers:
    """Names, those of plug-ins too."""
    return lambda context, typed: choices.names()


def several(choices: Choices, *more: str) -> Offers:
    """Names with commas between them, none twice."""

    def offers(context: click.Context, typed: str) -> Iterable[str]:
        given, comma, _ = typed.rpartition(",")
        known = (*more, *choices.names())
        return (f"{given}{comma}{name}" for name in known if name not in given.split(","))

    return offers


def files(*endings: str) -> Offers:
    """Files with these endings, and folders beside them; nothing if there are only folders."""

    def offers(context: click.Context, typed: str) -> Iterable[str]:
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

    return offers


def either(*offers: Offers) -> Offers:
    """All that several have to offer."""
    return lambda context, typed: (item for each in offers for item in each(context, typed))


def presets(context: click.Context, typed: str) -> Iterable[str]:
    """Machines that are known by name."""
    from pesto_cli.data.machine import PRESETS

    return PRESETS


def models(context: click.Context, typed: str) -> Iterable[str]:
    """Of the zoo."""
    from pesto_cli.zoo import MODELS

    return (f"zoo:{name}" for name in MODELS)


def ops(context: click.Context, typed: str) -> Iterable[str]:
    """Of the profile that was given, scope by scope."""
    from pesto_cli.errors import PestoError
    from pesto_cli.files import read_profile

    try:
        known = read_profile(context.params["profile"]).problem.graph.names
    except (KeyError, PestoError):
        return []
    done = len(typed)
    within = (name for name in known if name.startswith(typed))
    return sorted({name[: name.find("/", done) + 1] or name for name in within})


# By parameter, or by command and parameter.
OFFERS: Mapping[str, Offers] = {
    "profile": files(".profile.json", ".profile.json.gz"),
    "placement": files(*PLACEMENTS),
    "placements": files(*PLACEMENTS),
    "first": files(*PLACEMENTS),
    "second": files(*PLACEMENTS),
    "warm_start": files(*PLACEMENTS),
    "graph": files(*GRAPHS),
    "run graph": files(*GRAPHS, ".py"),
    "check graph": either(models, files(*GRAPHS, ".py")),
    "place source": either(models, files(*GRAPHS, ".py")),
    "export source": either(models, files(*GRAPHS, ".py")),
    "profile source": one_of(SOURCES),
    "machine": either(presets, names(*LIVE_MACHINES), files(".toml")),
    "run machine": either(names(*LIVE_MACHINES), files(".toml")),
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


class Offering(click.ParamType):  # type: ignore[type-arg]
    """A type as it was, which has something to offer at TAB; if not, the shell offers files."""

    def __init__(self, type_: Any, offers: Offers) -> None:
        self.name, self._type, self._offers = type_.name, type_, offers

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As the type does."""
        return self._type.convert(value, param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """What begins with what is typed."""
        found = [item for item in self._offers(ctx, incomplete) if item.startswith(incomplete)]
        if found or not isinstance(self._type, click.Path):
            return [CompletionItem(item) for item in found]
        return [CompletionItem(incomplete, type="file")]


def offer(command: click.Command) -> None:
    """Give the parameters of a command, or of all commands of a group, what they may offer."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            offer(each)
    for param in command.params:
        offers = OFFERS.get(f"{command.name} {param.name}", OFFERS.get(str(param.name)))
        if offers is not None and not isinstance(param.type, Offering):
            param.type = Offering(param.type, offers)


class Offered(ShellComplete):
    """Leaves out what a shell cannot be offered, or would take for something else."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """As click does, without values that have control characters or look like options.

        Protocols of the shells have a value a line; options are offered only behind a `-`.
        """
        found = super().get_completions(args, incomplete)
        may_begin_with_dash = incomplete.startswith("-") or "--" in args
        return [
            item
            for item in found
            if item.value.isprintable() and (may_begin_with_dash or item.value[:1] != "-")
        ]


@add_completion_class
class Bash(Offered, BashComplete):
    """Bash, which inserts what it is offered as it stands: it is quoted here.

    Bash takes `:` for the end of a word, so that click would see `zoo:RNN` in parts.
    """

    source_template = r"""
%(complete_func)s() {
    local typed=${COMP_LINE:0:COMP_POINT} type value
    COMPREPLY=()
    while IFS=, read -r type value; do
        if [[ $type == plain ]]; then
            COMPREPLY+=("$value")
            [[ $value == *[/:] ]] && compopt -o nospace 2>/dev/null
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
        """The words before the one that is typed, and that one."""
        words, typed = self._typed()
        return words[1:], typed.text

    def format_completion(self, item: CompletionItem) -> str:
        """A type and what bash is to insert."""
        value = self._typed()[1].completed(item.value) if item.type == "plain" else item.value
        return f"{item.type},{value}"

    def _typed(self) -> tuple[list[str], TypedWord]:
        return typed_words(os.environ["COMP_WORDS"], os.environ.get("COMP_WORDBREAKS", ""))


@add_completion_class
class Zsh(Offered, ZshComplete):
    """Zsh, also at the second TAB: a function from `fpath` is its file's whole text every time.

    It quotes what it is offered.
    """

    source_template = ZshComplete.source_template.replace(
        "$zsh_eval_context[-1] == loadautofunc", '"$funcstack[1]" == _%(prog_name)s'
    )


@add_completion_class
class Fish(Offered, FishComplete):
    """Fish, with one split at a comma: those in values and descriptions are theirs.

    It quotes what it is offered.
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
        """The words before the one that is typed, and that one."""
        words, typed = typed_words(os.environ["COMP_WORDS"])
        return words[1:], typed.text
