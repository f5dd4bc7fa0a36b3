"""Splitting the command line up to the cursor, and quoting the word that completes it."""

import re
from collections.abc import Collection
from dataclasses import dataclass

# Characters to quote: all but those that `shlex.quote` considers safe and letters of other scripts.
SPECIAL = re.compile(r"[^\w@%+=:,./-]")
SPECIAL_IN_DOUBLE_QUOTES = re.compile(r'[\\$`"]')


@dataclass(frozen=True)
class TypedWord:
    """The word at the cursor.

    text: the word without quotes. quote: the quotation mark that is open, or nothing. num_kept: how
    many characters of the text the shell keeps; it replaces those after them. has_tilde: the word
    begins with a `~` that stands for a home directory.
    """

    text: str = ""
    quote: str = ""
    num_kept: int = 0
    has_tilde: bool = False

    def completed(self, value: str) -> str:
        """Return what to insert for a value that begins with the text.

        The insertion is quoted, and leaves out the characters that the shell keeps.
        """
        rest = value[self.num_kept :]
        if self.quote == "'":
            return rest.replace("'", r"'\''")
        if self.quote == '"':
            escaped = SPECIAL_IN_DOUBLE_QUOTES.sub(r"\\\g<0>", rest)
            return escaped.replace("!", """"'!'\"""")  # expands the history, even in double quotes
        tilde = "~" * (self.has_tilde and not self.num_kept)
        return tilde + SPECIAL.sub(r"\\\g<0>", rest.removeprefix(tilde))


def typed_words(line: str, breaks: Collection[str] = "") -> tuple[list[str], TypedWord]:
    """Return the words before the cursor's word, and the cursor's word.

    breaks: characters after which the shell begins another word, as bash does after a `:`
    (COMP_WORDBREAKS). An open quotation mark begins another word, too.
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
    """A word that is built letter by letter."""

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
