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


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


KNOWN = _words(
    """
    alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi omicron
    pi varpi rho varrho sigma varsigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi
    Sigma Upsilon Phi Psi Omega aleph beth hbar ell Re Im imath jmath wp partial nabla infty emptyset
    varnothing frac dfrac tfrac cfrac binom dbinom tbinom sqrt root over choose sum prod coprod int iint
    iiint oint bigcup bigcap bigoplus bigotimes bigvee bigwedge limits nolimits lim limsup liminf max min
    sup inf arg det dim ker hom deg gcd lcm Pr exp log ln lg sin cos tan cot sec csc arcsin arccos arctan
    sinh cosh tanh coth mod bmod pmod pod operatorname cdot cdots ldots dots dotsb dotsc dotsm vdots ddots
    times div pm mp ast star circ bullet oplus ominus otimes odot cap cup setminus wedge vee land lor lnot
    neg uplus sqcap sqcup le leq leqslant ge geq geqslant ne neq lt gt ll gg equiv sim simeq approx cong
    propto asymp doteq prec succ preceq succeq nless ngtr nleq ngeq in notin ni subset supset subseteq
    supseteq subsetneq supsetneq nsubseteq mid nmid parallel nparallel perp vdash models forall exists
    nexists therefore because implies impliedby iff to gets mapsto leftarrow rightarrow leftrightarrow
    Leftarrow Rightarrow Leftrightarrow longrightarrow longleftarrow Longrightarrow Longleftarrow
    Longleftrightarrow longmapsto uparrow downarrow updownarrow Uparrow Downarrow nearrow searrow swarrow
    nwarrow hookrightarrow hookleftarrow rightharpoonup leftharpoonup rightleftharpoons xrightarrow
    xleftarrow left right middle big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr bigm Bigm
    langle rangle lfloor rfloor lceil rceil lvert rvert lVert rVert vert Vert lbrace rbrace lbrack rbrack
    backslash overline underline overbrace underbrace overrightarrow overleftarrow widehat widetilde hat
    tilde bar vec dot ddot acute grave breve check mathring not cancel bcancel xcancel boxed fbox stackrel
    overset underset substack text textrm textbf textit textsf texttt textnormal mathrm mathbf mathit
    mathsf mathtt mathcal mathscr mathfrak mathbb boldsymbol bm bold rm bf it mathop mathrel mathbin mathord
    displaystyle textstyle scriptstyle quad qquad begin end hline angle measuredangle triangle
    triangledown square blacksquare Box diamond Diamond lozenge bigstar degree prime backprime dagger
    ddagger S P checkmark clubsuit heartsuit spadesuit diamondsuit sharp flat natural surd top bot N Z Q R C colon textdollar textgreater textless
    """
)
ENVIRONMENTS = _words(
    """
    aligned alignedat gathered split cases dcases rcases array matrix pmatrix bmatrix Bmatrix vmatrix
    Vmatrix smallmatrix align align* gather gather* equation equation*
    """
)
_SYMBOLS = frozenset(",;:! {}|%&#_\\$'")
_NOTHING = " \t\n\r\ue000\ue001"
"""The last two stand where a mark begins and ends (``safe_text``), and are taken out again."""
_LONGEST = 2000
_DEEPEST = 30

_FORMULA = re.compile(
    r"(?P<escape>\\[\\$])"
    r"|(?P<environment>\\begin\{(?P<name>(?:align|gather|equation)\*?)\}"
    rf"(?:(?!\\begin\{{(?P=name)\}})[\s\S]){{1,{_LONGEST}}}?\\end\{{(?P=name)\}})"
    rf"|\$\$(?P<dollars>[^$]{{1,{_LONGEST}}}?)\$\$"
    rf"|\\\[(?P<bracket>(?:(?!\\[\[\]])[\s\S]){{1,{_LONGEST}}}?)\\\]"
    rf"|\\\((?P<paren>(?:(?!\\[()])[\s\S]){{1,{_LONGEST}}}?)\\\)"
    r"|\$(?P<dollar>(?![\s$])(?:\\[\s\S]|[^$\\]){1,500}?)(?<!\s)\$(?!\d)"
    r"|\$(?P<spaced>[ ]?(?:\\[\s\S]|[^$\\\n]){1,500}?[ ]?)\$(?!\d)"
    r"|(?P<boxed>\\boxed\{)"
)
_DISPLAYS = ("environment", "dollars", "bracket")
_COMMAND = re.compile(r"\\([A-Za-z]+\*?|[\s\S]|$)")
_WORDS_INSIDE = re.compile(r"\\(?:text\w*|mathrm|operatorname\*?|begin|end|mbox)\s*\{[^{}]*\}")
_WORD = re.compile(r"(?:^|(?<=[\s,.;:!?(]))[A-Za-z]{2,}(?=[\s,.;:!?)]|$)")
_COMMAND_OR_INDEX = re.compile(r"[\\^_]")
_OPERATOR = re.compile(r"[\\^_=<>{}]")
_FUNCTIONS = _words(
    """
    sin cos tan cot sec csc log exp gcd lcm max min mod det deg lim and iff
    """
)
_WORD_IN_A_BOX = re.compile(r"\\boxed\{\s*([A-Za-z]{2,}(?: [A-Za-z]+)*)\s*\}")
_NOT_INSIDE = re.compile(r"`|(?<!\\)\$")
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
        content = _WORD_IN_A_BOX.sub(r"\\boxed{\\text{\1}}", text[match.start() : end])
        if end and is_formula(content):
            return INLINE, _ready(content, one_line=True), end
    elif display := next((match[name] for name in _DISPLAYS if match[name] is not None), None):
        content = display
        if is_formula(content):
            return DISPLAY, _ready(content, one_line=False), match.end()
    elif match["paren"] is not None:
        if is_formula(match["paren"]):
            return INLINE, _ready(match["paren"], one_line=True), match.end()
    else:
        content = match["dollar"] if match["dollar"] is not None else match["spaced"]
        certain = match["dollar"] is not None or _COMMAND_OR_INDEX.search(content)
        if certain and is_formula(content) and not _is_prose(content):
            return INLINE, _ready(content, one_line=True), match.end()
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
    if not content.strip(_NOTHING) or _BLANK_LINE.search(content) or _NOT_INSIDE.search(content):
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
    bare = _WORDS_INSIDE.sub(" ", content)
    words = [word for word in _WORD.findall(bare) if word.lower() not in _FUNCTIONS]
    if _OPERATOR.search(bare):
        return len(words) >= 4
    return len(words) >= 2 or bool(words and content[0].isdigit())


def _ready(content: str, *, one_line: bool) -> str:
    """``content`` with what would end, hide or stretch it replaced by what looks the same."""
    content = content.replace(r"\\", "\0").replace(r"\$", r"\text{\textdollar}").replace("\0", r"\\")
    content = re.sub(r"(\\\\)\s*\[[^\]\n]*\]", r"\1", content)  # row distances
    content = re.sub(r"(?<!\\)((?:\\\\)*)([%#])", r"\1\\\2", content)  # % would hide the rest of the line
    content = re.sub(r":(?=[\w+-]+:)", r"\\mathrel{:}", content)  # ":name:" would become an emoji
    return (
        " ".join(content.split())
        if one_line
        else "\n".join(line.strip() for line in content.strip().split("\n"))
    )
