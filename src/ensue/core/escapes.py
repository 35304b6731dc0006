"""Escape control characters of data, so that a text cannot move the cursor, forge a line or reverse what is shown.

``escape_controls`` is for people: terminals, messages, names of tokens. ``escape_field`` is for a field of a line that
programs read too: it also doubles backslashes, so that ``unescape_field`` returns the text exactly.
"""

from __future__ import annotations

import re

BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""Characters that change the direction of writing (Unicode's property Bidi_Control), as a range of a regex."""
CONTROLS = "\x00-\x1f\x7f-\x9f\u2028\u2029"
"""C0 and C1 control characters, DEL, and Unicode's separators of lines and paragraphs, as a range of a regex."""
SHORT = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}
_INVISIBLE = re.compile(f"[{CONTROLS}{BIDI}]")
_IN_FIELD = re.compile(rf"[\\{CONTROLS}]")
_BREAKS = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_IN_JSON = re.compile(f"[\x7f-\x9f\u2028\u2029{BIDI}]")
_ESCAPED = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|(.))")


def escape(character: str) -> str:
    """A character as a backslash escape.

    >>> escape("\\n"), escape("\\x1b"), escape("\\u202e")
    ('\\\\n', '\\\\x1b', '\\\\u202e')
    """
    code = ord(character)
    return SHORT.get(character) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def escape_controls(text: object, keep: str = "") -> str:
    """Text with control and bidi characters as backslash escapes, except those in ``keep``.

    >>> escape_controls("a\\x1b[2J\\n"), escape_controls("a\\n", keep="\\n")
    ('a\\\\x1b[2J\\\\n', 'a\\n')
    """
    return _INVISIBLE.sub(lambda found: found[0] if found[0] in keep else escape(found[0]), str(text))


def escape_field(text: object) -> str:
    """A field of a line format: control characters as escapes and backslashes doubled, so that nothing is ambiguous.

    >>> escape_field("a\\tb"), escape_field("a\\\\tb")
    ('a\\\\tb', 'a\\\\\\\\tb')
    """
    return _IN_FIELD.sub(lambda found: "\\\\" if found[0] == "\\" else escape(found[0]), str(text))


def escape_breaks(text: object) -> str:
    """A text that must stay on one line, such as a translation: line breaks as escapes, all else as it is.

    >>> escape_breaks("one\\ntwo")
    'one\\\\ntwo'
    """
    return _BREAKS.sub(lambda found: escape(found[0]), str(text))


def unescape_field(field: str) -> str:
    """The text that ``escape_field`` was given.

    >>> unescape_field(escape_field("a\\tb\\\\c\\x1b"))
    'a\\tb\\\\c\\x1b'
    """
    plain = {short[1]: character for character, short in SHORT.items()}

    def original(found: re.Match[str]) -> str:
        code = found[1] or found[2]
        return chr(int(code, 16)) if code else plain.get(found[3], found[3])

    return _ESCAPED.sub(original, field)


def escape_json(text: str) -> str:
    """JSON with the control and bidi characters that JSON allows as they are, in its own escapes: the same value."""
    return _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
