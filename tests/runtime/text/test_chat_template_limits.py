"""Templates that would take for ever, or all memory, are stopped with a sentence."""

import tracemalloc

import pytest

from chat_templates import FAMILIES
from forebay_runtime.chat_template import ChatTemplate, ChatTemplateError, meter

CHAT = [{"role": "user", "content": "Hi"}]
TEXT = "it made more text than a prompt can need"
VALUES = "it handled more values than a prompt can need"
WIDTH = "it formats to a width that no prompt needs"


def grow(step: str) -> str:
    """Sixty times: make x, a text at first, twice as long."""
    loop = "{% for i in range(60) %}{% set ns.x = " + step + " %}{% endfor %}"
    return "{% set ns = namespace(x='ab') %}" + loop


def nest(use: str, empty: str = "[0]", pair: str = "[ns.%s, ns.%s]") -> str:
    """Use x and y: equal values of 2^60 parts, made of 60 small ones that share."""
    pairs = "".join("{% set ns." + name + " = " + pair % (name, name) + " %}" for name in "xy")
    start = "{% set ns = namespace(x=" + empty + ", y=" + empty + ") %}"
    return start + "{% for i in range(60) %}" + pairs + "{% endfor %}" + use


def nest_tuples(use: str) -> str:
    """The same of values that can be keys."""
    return nest(use, "(0,)", "(ns.%s, ns.%s)")


GIANTS = {
    "text-times": ("{{ 'a' * 10**9 }}", TEXT),
    "times-text": ("{{ 10**9 * 'a' }}", TEXT),
    "list-times": ("{{ ([1] * 10**9)|length }}", TEXT),
    "in-an-elif": ("{% if false %}{% elif 'a' * 10**9 %}{% endif %}", TEXT),
    "power": ("{{ 10 ** (10 ** 8) }}", "it computes numbers that no prompt needs"),
    "range": ("{% for i in range(10**9) %}{% endfor %}", "Range too big"),
    "output": ("{% for i in range(99999) %}{{ 'x' * 10**5 }}{% endfor %}", TEXT),
    "own-text": ("{% for i in range(99999) %}" + "x" * 9999 + "{% endfor %}", TEXT),
    "set-block": (
        "{% set x %}{% for i in range(99999) %}" + "x" * 9999 + "{% endfor %}{% endset %}",
        TEXT,
    ),
    "macro": (
        "{% macro m(n) %}{% if n %}{% set x = m(n - 1) %}{{ x }}{{ x }}{% else %}ab{% endif %}"
        "{% endmacro %}{{ m(60) }}",
        TEXT,
    ),
    "tilde": (grow("ns.x ~ ns.x"), TEXT),
    "plus": (grow("ns.x + ns.x"), TEXT),
    "join": (grow("''.join([ns.x, ns.x])"), TEXT),
    "join-text": (grow("ns.x.join('abc')"), TEXT),
    "join-filter": (grow("[ns.x, ns.x]|join"), TEXT),
    "join-generator": (grow("[1, 2, 3]|map('string')|join(ns.x)"), TEXT),
    "percent": (grow("'%s%s' % (ns.x, ns.x)"), TEXT),
    "percent-names": (grow("'%(x)s%(x)s' % {'x': ns.x}"), TEXT),
    "format": (grow("'{0}{0}'.format(ns.x)"), TEXT),
    "format-map": (grow("'{x}{x}'.format_map({'x': ns.x})"), TEXT),
    "format-filter": (grow("'%s%s'|format(ns.x, ns.x)"), TEXT),
    "replace": (grow("ns.x.replace('a', 'aab')"), TEXT),
    "replace-filter": (grow("ns.x|replace('a', 'aab')"), TEXT),
    "json": (grow("[ns.x, ns.x]|tojson"), TEXT),
    "json-indent": (grow("[ns.x, ns.x]|tojson(indent=2)"), TEXT),
    "escape": (grow("(ns.x ~ '&<')|e ~ ns.x"), TEXT),
    "kept-copies": (
        "{% set ns = namespace(l=[]) %}{% set x = 'a' * 10**7 %}{% for i in range(999) %}"
        "{% set ns.l = ns.l + [x[1:]] %}{% endfor %}",
        TEXT,
    ),
    "split": ("{{ ('a,' * 10**7).split(',')|length }}", TEXT),
    "split-lines": ("{{ ('a\\n' * 10**7).splitlines()|length }}", TEXT),
    "list": ("{{ ('ab' * 10**7)|list|length }}", TEXT),
    "ljust": ("{{ 'a'.ljust(10**9) }}", TEXT),
    "center": ("{{ 'a'|center(10**9) }}", TEXT),
    "center-block": ("{% filter center(10**9) %}a{% endfilter %}", TEXT),
    "zfill": ("{{ 'a'.zfill(10**9) }}", TEXT),
    "tabs": ("{{ '\t'.expandtabs(10**9) }}", TEXT),
    "indent": ("{{ 'a\nb'|indent(10**9) }}", TEXT),
    "batch": ("{{ [1]|batch(10**9, 'x')|list }}", TEXT),
    "slices": ("{{ [1]|slice(10**9)|list }}", TEXT),
    "percent-width": ("{{ '%1000000000d' % 1 }}", WIDTH),
    "percent-star": ("{{ '%*d' % (10**9, 1) }}", WIDTH),
    "percent-digits": ("{{ '%.1000000000f'|format(1.0) }}", WIDTH),
    "format-width": ("{{ '{:1000000000}'.format(1) }}", WIDTH),
    "format-inner-width": ("{{ '{:{w}}'.format(1, w=10**9) }}", WIDTH),
    "json-width": ("{{ [1]|tojson(indent=10**9) }}", "indents by more than 64"),
    "json-separators": ("{{ [1]|tojson(separators=('a' * 99, 'b')) }}", "longer than 64"),
    "bytes": ("{{ (5).to_bytes(10**9, 'big') }}", r"it calls to_bytes\(\)"),
    "translate": ("{{ 'a'.translate({97: 'b' * 999}) }}", r"it calls translate\(\)"),
    "round": ("{{ 1.5|round(10**9, 'ceil') }}", "more digits than there are"),
    "sum-of-lists": ("{{ [[1]]|sum(start=[]) }}", "sums what are no numbers"),
    "lorem": ("{{ lipsum(10**9) }}", "'lipsum' is undefined"),
    "shared-text": (nest("{{ ns.x }}"), VALUES),
    "shared-json": (nest("{{ ns.x|tojson }}"), VALUES),
    "shared-namespace": (nest("{{ ns }}"), VALUES),
    "shared-items": (nest("{{ {'a': ns.x}.items() }}"), VALUES),
    "shared-equal": (nest("{{ ns.x == ns.y }}"), VALUES),
    "shared-in": (nest("{{ ns.x in [ns.y] }}"), VALUES),
    "shared-test": (nest("{{ ns.x is eq(ns.y) }}"), VALUES),
    "shared-select": (nest("{{ [{'a': ns.x}]|selectattr('a', '==', ns.y)|list }}"), VALUES),
    "shared-index": (nest("{{ [ns.x].index(ns.y) }}"), VALUES),
    "shared-sort": (nest("{{ [ns.x, ns.y]|sort }}"), VALUES),
    "shared-changed": (
        nest("{% for i in [ns.x, ns.y] %}{{ loop.changed(i) }}{% endfor %}"),
        VALUES,
    ),
    "shared-key": (nest_tuples("{{ {ns.x: 1} }}"), VALUES),
    "shared-dict": (nest_tuples("{{ dict([(ns.x, 1)]) }}"), VALUES),
    "shared-subscript": (nest_tuples("{{ {}[ns.x] }}"), VALUES),
    "shared-get": (nest_tuples("{{ {}.get(ns.x) }}"), VALUES),
    "shared-unique": (nest_tuples("{{ [ns.x, ns.y]|unique|list }}"), VALUES),
    "search-back": ("{{ ('a' * 10**6).rfind('b' + 'a' * 10**5) }}", "searches for more text"),
    "strip": ("{{ ('a' * 10**6).strip('b' * 10**6) }}", "strips more kinds"),
    "macro-without-end": ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "without an end"),
    "loop-without-end": (
        "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
        "without an end",
    ),
    "deep-json": (
        "{% set ns = namespace(x=[1]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}"
        "{% endfor %}{{ ns.x|tojson }}",
        "without an end",
    ),
    "deep-source": ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "does not compile"),
    "many-blocks": ("{% for i in [1] %}" * 50 + "{% endfor %}" * 50, "does not compile"),
    "while-compiling": ("{% if 'a'|center(10**9) %}{% endif %}", TEXT),
}
ENDLESS = {
    "loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "filtered-loops": "{% for i in range(99999) %}{% for j in range(99999) if false %}{% endfor %}"
    "{% endfor %}",
    "macros": "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}"
    "{{ m(60) }}",
    "callers": "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}"
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}{% endcall %}",
    "filters": "{% for i in range(99999) %}{% set x = range(99999)|map('string')|list %}"
    "{% endfor %}",
    "a-clock-of-its-own": "{% set clock = 1 %}{% for i in range(99999) %}"
    "{% for j in range(99999) %}{% endfor %}{% endfor %}",
}


@pytest.mark.parametrize(("source", "named"), GIANTS.values(), ids=GIANTS.keys())
def test_a_template_that_would_outgrow_memory_is_stopped(
    monkeypatch: pytest.MonkeyPatch, source: str, named: str
) -> None:
    monkeypatch.setattr(meter, "MAX_STEPS", 100_000)
    monkeypatch.setattr(meter, "MIN_BYTES", 20 << 20)
    with pytest.raises(ChatTemplateError, match=named):
        ChatTemplate(source, {}).render(CHAT)


@pytest.mark.parametrize("source", ENDLESS.values(), ids=ENDLESS.keys())
def test_a_template_without_an_end_is_stopped(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    monkeypatch.setattr(meter, "MAX_SECONDS", 0.1)
    with pytest.raises(ChatTemplateError, match=r"took longer than 0\.1 seconds"):
        ChatTemplate(source, {}).render(CHAT)


@pytest.mark.parametrize("name", ["output", "set-block", "macro", "kept-copies", "json-indent"])
def test_what_is_stopped_was_small(name: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ChatTemplateError):
            ChatTemplate(GIANTS[name][0], {}).render(CHAT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * meter.MIN_BYTES


@pytest.mark.parametrize("name", ["chatml", "qwen3", "phi3", "mistral"])
def test_a_long_chat_is_well_within_the_limits(name: str) -> None:
    turn = [{"role": "user", "content": "é" * 4000}, {"role": "assistant", "content": "b " * 4000}]
    chat = [*turn * 150, turn[0]]
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    assert len(ChatTemplate(FAMILIES[name], tokens).render(chat)) > 150 * 12_000
