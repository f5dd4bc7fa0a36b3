"""The command line up to the cursor, and how a completed word is written back into it."""

import re
from collections.abc import Collection
from dataclasses import dataclass

# All but what `shlex.quote` takes for safe, and letters of other scripts.
SPECIAL = re.compile(r"[^\w@%+=:,./-]")
SPECIAL_IN_DOUBLE_QUOTES = re.compile(r'[\\$`"]')


@dataclass(frozen=True)
class TypedWord:
    """The word at the cursor.

    text: what it stands for, without quotes. quote: the quotation mark that is open, or nothing.
    num_kept: characters of the text that the shell keeps; it replaces what is behind them.
    has_tilde: it begins with a `~` that stands for a home.
    """

    text: str = ""
    quote: str = ""
    num_kept: int = 0
    has_tilde: bool = False

    def completed(self, value: str) -> str:
        """What is inserted for a value that begins with the text: quoted, without what is kept."""
        rest = value[self.num_kept :]
        if self.quote == "'":
            return rest.replace("'", r"'\''")
        if self.quote == '"':
            escaped = SPECIAL_IN_DOUBLE_QUOTES.sub(r"\\\g<0>", rest)
            return escaped.replace("!", """"'!'\"""")  # of the history, also in double quotes
        tilde = "~" * (self.has_tilde and not self.num_kept)
        return tilde + SPECIAL.sub(r"\\\g<0>", rest.removeprefix(tilde))


def typed_words(line: str, breaks: Collection[str] = "") -> tuple[list[str], TypedWord]:
    """Split a line into the words before the one at the cursor, and that one.

    breaks: characters behind which the shell begins another word, as bash does behind a `:`
    (COMP_WORDBREAKS). It does so behind a quotation mark, too, as long as it is open.
    """
    words: list[str] = []
    word = _Word()
    for letter in line:
        if letter.isspace() and not word.is_quoting:
            if word.is_begun:
                words.append(word.text)
            word = _Word()
        else:
            word.take(letter, breaks)
    return words, TypedWord(word.text, word.quote, word.num_kept, word.has_tilde)


class _Word:
    """A word of which letters come one by one."""

    def __init__(self) -> None:
        self.text, self.quote, self.num_kept, self._kept_before_quote = "", "", 0, 0
        self.is_begun = self.is_escaped = self.has_tilde = False

    @property
    def is_quoting(self) -> bool:
        return self.is_escaped or bool(self.quote)

    def take(self, letter: str, breaks: Collection[str]) -> None:
        self.has_tilde |= letter == "~" and not self.is_begun
        self.is_begun = True
        if self.is_escaped:
            is_kept = self.quote and letter not in '\\$`"'
            self.text += f"\\{letter}" if is_kept else letter
            self.is_escaped = False
        elif letter == "\\" and self.quote != "'":
            self.is_escaped = True
        elif letter == self.quote:
            self.quote, self.num_kept = "", self._kept_before_quote
        elif letter in "\"'" and not self.quote:
            self._kept_before_quote = self.num_kept
            self.quote, self.num_kept = letter, len(self.text)
        else:
            self.text += letter
            if letter in breaks and not self.quote:
                self.num_kept = len(self.text)
