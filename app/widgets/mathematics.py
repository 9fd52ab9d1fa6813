"""Finds the mathematics in prose: which ``$…$`` is a formula and which is money.

``split`` cuts a text into prose, inline and display formulas. A formula is taken only if KaTeX can draw it and it
can neither load, link, colour, hide nor move anything: its commands come from the list in ``KNOWN``. All else stays
prose. Not here: escaping the prose (``safe_text.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

Kind = Literal["prose", "inline", "display"]
PROSE: Kind = "prose"
INLINE: Kind = "inline"
DISPLAY: Kind = "display"

KNOWN = frozenset(
    [
        r"alpha",
        r"beta",
        r"gamma",
        r"delta",
        r"epsilon",
        r"varepsilon",
        r"zeta",
        r"eta",
        r"theta",
        r"vartheta",
        r"iota",
        r"kappa",
        r"lambda",
        r"mu",
        r"nu",
        r"xi",
        r"omicron",
        r"pi",
        r"varpi",
        r"rho",
        r"varrho",
        r"sigma",
        r"varsigma",
        r"tau",
        r"upsilon",
        r"phi",
        r"varphi",
        r"chi",
        r"psi",
        r"omega",
        r"Gamma",
        r"Delta",
        r"Theta",
        r"Lambda",
        r"Xi",
        r"Pi",
        r"Sigma",
        r"Upsilon",
        r"Phi",
        r"Psi",
        r"Omega",
        r"aleph",
        r"beth",
        r"hbar",
        r"ell",
        r"Re",
        r"Im",
        r"imath",
        r"jmath",
        r"wp",
        r"partial",
        r"nabla",
        r"infty",
        r"emptyset",
        r"varnothing",
        r"frac",
        r"dfrac",
        r"tfrac",
        r"cfrac",
        r"binom",
        r"dbinom",
        r"tbinom",
        r"sqrt",
        r"root",
        r"over",
        r"choose",
        r"sum",
        r"prod",
        r"coprod",
        r"int",
        r"iint",
        r"iiint",
        r"oint",
        r"bigcup",
        r"bigcap",
        r"bigoplus",
        r"bigotimes",
        r"bigvee",
        r"bigwedge",
        r"limits",
        r"nolimits",
        r"lim",
        r"limsup",
        r"liminf",
        r"max",
        r"min",
        r"sup",
        r"inf",
        r"arg",
        r"det",
        r"dim",
        r"ker",
        r"hom",
        r"deg",
        r"gcd",
        r"lcm",
        r"Pr",
        r"exp",
        r"log",
        r"ln",
        r"lg",
        r"sin",
        r"cos",
        r"tan",
        r"cot",
        r"sec",
        r"csc",
        r"arcsin",
        r"arccos",
        r"arctan",
        r"sinh",
        r"cosh",
        r"tanh",
        r"coth",
        r"mod",
        r"bmod",
        r"pmod",
        r"pod",
        r"operatorname",
        r"cdot",
        r"cdots",
        r"ldots",
        r"dots",
        r"dotsb",
        r"dotsc",
        r"dotsm",
        r"vdots",
        r"ddots",
        r"times",
        r"div",
        r"pm",
        r"mp",
        r"ast",
        r"star",
        r"circ",
        r"bullet",
        r"oplus",
        r"ominus",
        r"otimes",
        r"odot",
        r"cap",
        r"cup",
        r"setminus",
        r"wedge",
        r"vee",
        r"land",
        r"lor",
        r"lnot",
        r"neg",
        r"uplus",
        r"sqcap",
        r"sqcup",
        r"le",
        r"leq",
        r"leqslant",
        r"ge",
        r"geq",
        r"geqslant",
        r"ne",
        r"neq",
        r"lt",
        r"gt",
        r"ll",
        r"gg",
        r"equiv",
        r"sim",
        r"simeq",
        r"approx",
        r"cong",
        r"propto",
        r"asymp",
        r"doteq",
        r"prec",
        r"succ",
        r"preceq",
        r"succeq",
        r"nless",
        r"ngtr",
        r"nleq",
        r"ngeq",
        r"in",
        r"notin",
        r"ni",
        r"subset",
        r"supset",
        r"subseteq",
        r"supseteq",
        r"subsetneq",
        r"supsetneq",
        r"nsubseteq",
        r"mid",
        r"nmid",
        r"parallel",
        r"nparallel",
        r"perp",
        r"vdash",
        r"models",
        r"forall",
        r"exists",
        r"nexists",
        r"therefore",
        r"because",
        r"implies",
        r"impliedby",
        r"iff",
        r"to",
        r"gets",
        r"mapsto",
        r"leftarrow",
        r"rightarrow",
        r"leftrightarrow",
        r"Leftarrow",
        r"Rightarrow",
        r"Leftrightarrow",
        r"longrightarrow",
        r"longleftarrow",
        r"Longrightarrow",
        r"Longleftarrow",
        r"Longleftrightarrow",
        r"longmapsto",
        r"uparrow",
        r"downarrow",
        r"updownarrow",
        r"Uparrow",
        r"Downarrow",
        r"nearrow",
        r"searrow",
        r"swarrow",
        r"nwarrow",
        r"hookrightarrow",
        r"hookleftarrow",
        r"rightharpoonup",
        r"leftharpoonup",
        r"rightleftharpoons",
        r"xrightarrow",
        r"xleftarrow",
        r"left",
        r"right",
        r"middle",
        r"big",
        r"Big",
        r"bigg",
        r"Bigg",
        r"bigl",
        r"bigr",
        r"Bigl",
        r"Bigr",
        r"biggl",
        r"biggr",
        r"Biggl",
        r"Biggr",
        r"bigm",
        r"Bigm",
        r"langle",
        r"rangle",
        r"lfloor",
        r"rfloor",
        r"lceil",
        r"rceil",
        r"lvert",
        r"rvert",
        r"lVert",
        r"rVert",
        r"vert",
        r"Vert",
        r"lbrace",
        r"rbrace",
        r"lbrack",
        r"rbrack",
        r"backslash",
        r"overline",
        r"underline",
        r"overbrace",
        r"underbrace",
        r"overrightarrow",
        r"overleftarrow",
        r"widehat",
        r"widetilde",
        r"hat",
        r"tilde",
        r"bar",
        r"vec",
        r"dot",
        r"ddot",
        r"acute",
        r"grave",
        r"breve",
        r"check",
        r"mathring",
        r"not",
        r"cancel",
        r"bcancel",
        r"xcancel",
        r"boxed",
        r"fbox",
        r"stackrel",
        r"overset",
        r"underset",
        r"substack",
        r"text",
        r"textrm",
        r"textbf",
        r"textit",
        r"textsf",
        r"texttt",
        r"textnormal",
        r"mathrm",
        r"mathbf",
        r"mathit",
        r"mathsf",
        r"mathtt",
        r"mathcal",
        r"mathscr",
        r"mathfrak",
        r"mathbb",
        r"boldsymbol",
        r"bm",
        r"mathop",
        r"mathrel",
        r"mathbin",
        r"mathord",
        r"displaystyle",
        r"textstyle",
        r"scriptstyle",
        r"quad",
        r"qquad",
        r"begin",
        r"end",
        r"hline",
        r"angle",
        r"measuredangle",
        r"triangle",
        r"triangledown",
        r"square",
        r"blacksquare",
        r"Box",
        r"diamond",
        r"Diamond",
        r"lozenge",
        r"bigstar",
        r"degree",
        r"prime",
        r"backprime",
        r"dagger",
        r"ddagger",
        r"S",
        r"P",
        r"checkmark",
        r"sharp",
        r"flat",
        r"natural",
        r"surd",
        r"top",
        r"bot",
        r"N",
        r"Z",
        r"Q",
        r"R",
        r"C",
        r"colon",
        r"textdollar",
        r"lbrace",
        r"rbrace",
    ]
)
ENVIRONMENTS = frozenset(
    [
        "aligned",
        "alignedat",
        "gathered",
        "split",
        "cases",
        "dcases",
        "rcases",
        "array",
        "matrix",
        "pmatrix",
        "bmatrix",
        "Bmatrix",
        "vmatrix",
        "Vmatrix",
        "smallmatrix",
        "align",
        "align*",
        "gather",
        "gather*",
        "equation",
        "equation*",
    ]
)
_SYMBOLS = frozenset(",;:! {}|%&#_\\$'")
_LONGEST = 2000
_DEEPEST = 30

_FORMULA = re.compile(
    r"(?P<escape>\\[\\$])"
    rf"|\$\$(?P<dollars>[^$]{{1,{_LONGEST}}}?)\$\$"
    rf"|\\\[(?P<bracket>(?:(?!\\[\[\]])[\s\S]){{1,{_LONGEST}}}?)\\\]"
    rf"|\\\((?P<paren>(?:(?!\\[()])[\s\S]){{1,{_LONGEST}}}?)\\\)"
    r"|\$(?P<dollar>(?![\s$])(?:\\[\s\S]|[^$\\]){1,500}?)(?<!\s)\$(?!\d)"
    r"|(?P<boxed>\\boxed\{)"
)
_COMMAND = re.compile(r"\\([A-Za-z]+\*?|[\s\S]|$)")
_WORDS_INSIDE = re.compile(r"\\(?:text\w*|mathrm|operatorname\*?|begin|end|mbox)\s*\{[^{}]*\}")
_WORD = re.compile(r"(?<![A-Za-z\\])[A-Za-z]{3,}")
_FUNCTIONS = frozenset(
    [
        "sin",
        "cos",
        "tan",
        "cot",
        "sec",
        "csc",
        "log",
        "exp",
        "gcd",
        "lcm",
        "max",
        "min",
        "mod",
        "det",
        "deg",
        "lim",
        "and",
        "iff",
    ]
)
_BLANK_LINE = re.compile(r"\n[ \t]*\n")


def split(text: str) -> Iterator[tuple[Kind, str]]:
    """``text`` as (kind, content) pieces in order; inline content is on one line, display content has no blank one.

    Formulas are made ready for KaTeX inside Streamlit's markdown; prose is untouched but for ``\\$``, which is a
    dollar sign.
    """
    prose: list[str] = []
    at = 0
    while match := _FORMULA.search(text, at):
        prose.append(text[at : match.start()])
        kind, content, end = _formula(text, match)
        if kind == PROSE:
            prose.append(content)
        else:
            if any(prose):
                yield PROSE, "".join(prose)
            prose = []
            yield kind, content
        at = end
    prose.append(text[at:])
    if any(prose):
        yield PROSE, "".join(prose)


def _formula(text: str, match: re.Match[str]) -> tuple[Kind, str, int]:
    """What the match is, as (kind, content, where to go on)."""
    if match["escape"]:
        return PROSE, "$" if match[0] == r"\$" else match[0], match.end()
    if match["boxed"]:
        end = _closing_brace(text, match.end())
        content = text[match.start() : end]
        if end and is_formula(content):
            return INLINE, _ready(content, one_line=True), end
    elif match["dollars"] is not None or match["bracket"] is not None:
        content = match["dollars"] if match["dollars"] is not None else match["bracket"]
        if is_formula(content):
            return DISPLAY, _ready(content, one_line=False), match.end()
    elif match["paren"] is not None:
        if is_formula(match["paren"]):
            return INLINE, _ready(match["paren"], one_line=True), match.end()
    elif is_formula(match["dollar"]) and not _is_prose(match["dollar"]):
        return INLINE, _ready(match["dollar"], one_line=True), match.end()
    # Not a formula: the opening sign is prose, and what follows it may still hold one.
    sign = 2 if match[0].startswith(("$$", "\\[", "\\(")) else len(match[0]) if match["boxed"] else 1
    return PROSE, match[0][:sign], match.start() + sign


def _closing_brace(text: str, start: int) -> int:
    """The position behind the brace that closes the one before ``start``; 0 if there is none nearby."""
    depth = 1
    for at in range(start, min(len(text), start + 500)):
        if text[at] in "{}" and text[at - 1] != "\\":
            depth += 1 if text[at] == "{" else -1
            if depth == 0:
                return at + 1
    return 0


def is_formula(content: str) -> bool:
    """Whether KaTeX can draw ``content`` and it is harmless: known commands, balanced, not too deep, no blank line."""
    if not content.strip() or _BLANK_LINE.search(content) or "`" in content:
        return False
    environments: list[str] = []
    open_delimiters = 0
    for command in _COMMAND.finditer(content):
        name = command[1].rstrip("*") or command[1]
        if name not in KNOWN and (len(command[1]) != 1 or command[1].isalpha() or command[1] not in _SYMBOLS):
            return False
        if name in ("left", "right"):
            open_delimiters += 1 if name == "left" else -1
            if open_delimiters < 0:
                return False
        if name in ("begin", "end"):
            environment = re.match(r"\s*\{([^{}]*)\}", content[command.end() :])
            if not environment or environment[1] not in ENVIRONMENTS:
                return False
            if name == "begin":
                environments.append(environment[1])
            elif not environments or environments.pop() != environment[1]:
                return False
    return not environments and not open_delimiters and _balanced(content)


def _balanced(content: str) -> bool:
    depth = 0
    for brace in re.findall(r"(?:\\[\s\S]|([{}]))", content):
        if brace:
            depth += 1 if brace == "{" else -1
            if not 0 <= depth <= _DEEPEST:
                return False
    return depth == 0


def _is_prose(content: str) -> bool:
    """Whether what stands between two dollar signs is words rather than a formula ("$5 and got 3$")."""
    words = [w for w in _WORD.findall(_WORDS_INSIDE.sub(" ", content)) if w.lower() not in _FUNCTIONS]
    return len(words) >= 2 or bool(re.match(r"\d[\d.,]*\s+[A-Za-z]{2,}", content))


def _ready(content: str, *, one_line: bool) -> str:
    """``content`` with what would end, hide or stretch it replaced by what looks the same."""
    content = content.replace(r"\\", "\0").replace(r"\$", r"\text{\textdollar}").replace("\0", r"\\")
    content = re.sub(r"(\\\\)\s*\[[^\]\n]*\]", r"\1", content)  # row distances
    content = re.sub(r"(?<!\\)((?:\\\\)*)([%#])", r"\1\\\2", content)  # % would hide the rest of the line
    content = re.sub(r":(?=[\w+-])", r"\\mathrel{:}", content)  # ":name:" would become an emoji
    return (
        " ".join(content.split())
        if one_line
        else "\n".join(line.strip() for line in content.strip().split("\n"))
    )
