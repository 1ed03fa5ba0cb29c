"""Graphs as text, mermaid and pictures: what is drawn, that nothing overlaps, and that no name can do harm."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast._model.declare.graph import END, UNKNOWN, Edge, beginnings, declared, endless, in_order
from holdfast.drawing import STATES, STYLE, Drawing, Link, as_mermaid, as_svg, as_text
from holdfast.drawing.layers import Point
from holdfast.drawing.lines import Layout, Line, arrange
from holdfast.drawing.spread import Box

SVG = "{http://www.w3.org/2000/svg}"
LATER = True

GREETER = {
    "ReadName": [Edge("SayHello"), Edge("Fetch", LATER)],
    "Fetch": [Edge("SayHello"), Edge("Fetch", LATER)],
    "SayHello": [Edge(END)],
}
LOOP = {"Ask": [Edge("Wait", LATER)], "Wait": [Edge("Ask"), Edge(END)]}
UNSURE = {"Begin": [Edge("Middle"), Edge(UNKNOWN)], "Middle": [Edge(UNKNOWN, LATER), Edge(END)], "Stop": []}
FUNCTION = {"main": [Edge(END)]}
HOSTILE = (
    "</svg><script>alert(1)</script>",
    '" onload="x\' & <b>',
    '"] --> evil["',
    "end",
    "a\x00b\x1b[31m\u202ec\u2028d\ud800",
    "x" * 500,
    "]]>",
    "#quot;%%{init: {}}%%",
    "\n  click a href",
)


# What is drawn --------------------------------------------------------------------------------------


def test_links_are_merged_and_a_way_adds_what_the_graph_lacks() -> None:
    both = {"A": [Edge("B"), Edge("B", LATER), Edge(END)], "B": [Edge("A", LATER)]}
    drawing = Drawing("k", both, way=["A", "B", "A", "B", "Gone", END])
    assert drawing.links == [
        Link("A", "B", at_once=True, later=True, taken=2),
        Link("A", END, at_once=True),
        Link("B", "A", later=True, taken=1),
        Link("B", "Gone", taken=1),
        Link("Gone", END, taken=1),
    ]
    assert [link.label for link in drawing.links] == ["or later \u00d72", "", "later", "", ""]
    assert drawing.steps == ["A", "B", "Gone"]
    assert drawing.nodes == ["A", "B", "Gone", END]
    assert drawing.strangers == ["Gone"]


def test_strangers_have_tasks_but_no_code() -> None:
    drawing = Drawing("k", LOOP, counts={"Old": {"ready": 2}, "Empty": {"ready": 0}, "Ask": {"parked": 1}})
    assert drawing.strangers == ["Old"]
    assert Drawing("f", FUNCTION, counts={"main": {"ready": 1}}).is_function
    assert not Drawing("f", FUNCTION, counts={"Old": {"ready": 1}}).is_function
    assert not Drawing("k", LOOP).is_function


def test_t23_where_tasks_begin_and_where_they_never_end() -> None:
    assert beginnings(GREETER) == ["ReadName"]
    assert beginnings(LOOP) == ["Ask"]
    assert beginnings(UNSURE) == ["Begin", "Stop"]
    two_loops = {"A": [Edge("B")], "B": [Edge("A")], "C": [Edge("D")], "D": [Edge("C")], "E": [Edge("E"), Edge("A")]}
    assert beginnings(two_loops) == ["C", "E"]
    assert endless(two_loops) == ["A", "B", "C", "D", "E"]
    assert endless(GREETER) == endless(UNSURE) == []
    assert endless({"A": [Edge("A"), Edge("B")], "B": [Edge("B", LATER)], "C": [Edge(END)]}) == ["A", "B"]
    assert beginnings({}) == endless({}) == []


def test_the_first_step_is_known_whatever_the_order() -> None:
    ring = {"B": [Edge("C")], "C": [Edge("A")], "A": [Edge("B"), Edge(END)]}
    assert beginnings(ring) == ["B"]
    assert beginnings(ring, "A") == ["A"] and beginnings(ring, "gone") == ["B"]
    assert beginnings({**ring, "Alone": [Edge("A")]}, "B") == ["B", "Alone"]
    assert Drawing("k", ring, first="A").steps == ["A", "B", "C"]


def test_t23_a_graph_as_workers_stored_it() -> None:
    assert declared({"A": ["B", "end"], "B": []}) == {"A": [Edge("B"), Edge(END)], "B": []}
    assert declared({"A": [1, None, "B"], "B": 3, "C": "text"}) == {"A": [Edge("B")]}
    assert declared([1]) == declared(None) == {}


# Text -----------------------------------------------------------------------------------------------


def text_of(*drawings: Drawing) -> str:
    return "\n" + as_text(drawings)


def test_text_branches_marks_loops_and_does_not_repeat_itself() -> None:
    assert (
        text_of(Drawing("greeter", GREETER))
        == """
greeter
  ReadName
  ├→ SayHello
  │  → end
  └→ Fetch (later)
     ├→ SayHello (above)
     └→ Fetch (later) ↺
"""
    )
    assert (
        text_of(Drawing("loop", LOOP), Drawing("unsure", UNSURE))
        == """
loop
  Ask
  → Wait (later)
  ├→ Ask ↺
  └→ end

unsure
  Begin
  ├→ Middle
  │  ├→ ? (later)
  │  └→ end
  └→ ?
  Stop (only raises)
"""
    )


def test_text_has_functions_in_one_line_and_counts_in_one_column() -> None:
    counts = {"ReadName": {"running": 1, "ready": 1200}, "SayHello": {"parked": 2}, "Old": {"waiting": 3}}
    drawings = [
        Drawing("send", FUNCTION, {"main": {"ready": 4, "parked": 1}}),
        Drawing("greeter", GREETER, counts, way=["ReadName", "SayHello"]),
        Drawing("hello", FUNCTION),
        Drawing("empty", {}),
    ]
    assert (
        text_of(*drawings)
        == """
greeter
  ReadName                 1,200 ready, 1 running
  ├→ SayHello ◀            2 parked
  │  → end
  └→ Fetch (later)
     ├→ SayHello (above)
     └→ Fetch (later) ↺
  Old (not in this code)   3 waiting

empty
  (no steps yet)

functions  send (4 ready, 1 parked), hello
"""
    )
    assert as_text([]) == ""


def test_paint_gets_every_part_and_what_it_is() -> None:
    painted = as_text(
        [Drawing("unsure", UNSURE, {"Begin": {"parked": 1}})], paint=lambda text, role: f"<{role}:{text}>"
    )
    assert painted.startswith("<kind:unsure>\n  <dim:><step:Begin><dim:>")
    assert "<parked:1 parked>" in painted
    assert "<dim:├→ ><step:Middle><dim:>" in painted
    assert "<dim:└→ ><unknown:?><dim:>" in painted
    assert "<end:end>" in painted


def test_long_chains_are_drawn_in_every_format() -> None:
    chain = {f"S{i}": [Edge(f"S{i + 1}" if i < 1999 else END)] for i in range(2000)}
    assert as_text([Drawing("chain", chain)]).count("\n") == 2002
    assert as_mermaid([Drawing("chain", chain)]).count("-->") == 2000
    short = {name: chain[name] for name in list(chain)[:300]}
    assert as_svg([Drawing("chain", short)]).count("data-step") == 301


def test_a_stored_graph_may_lead_to_steps_that_it_does_not_have() -> None:
    drawing = Drawing("cut", {"A": [Edge("B"), Edge(END)]}, {"B": {"ready": 1}})
    assert drawing.strangers == ["B"]
    assert (
        text_of(drawing)
        == """
cut
  A
  ├→ B (not in this code)   1 ready
  └→ end
"""
    )
    assert classes_of(parsed(as_svg([drawing]))) == {"A": "step", "B": "step stranger", "end": "end"}
    assert as_mermaid([drawing]).splitlines()[2] == '  k0s1["B<br/>1 ready"]:::stranger'


# Mermaid --------------------------------------------------------------------------------------------


def test_mermaid_draws_a_flowchart() -> None:
    drawing = Drawing("greeter", GREETER, {"ReadName": {"ready": 3}}, way=["ReadName", "Fetch", "Fetch", "Fetch"])
    assert (
        "\n" + as_mermaid([drawing])
        == """
flowchart LR
  k0s0["ReadName<br/>3 ready"]
  k0s1["Fetch"]:::current
  k0s2["SayHello"]
  k0s3(["end"])
  k0s0 --> k0s2
  k0s0 -.->|"later"| k0s1
  k0s1 --> k0s2
  k0s1 -.->|"later #215;2"| k0s1
  k0s2 --> k0s3
  classDef current stroke-width:3px
  linkStyle 1,3 stroke-width:4px
"""
    )


def test_mermaid_frames_several_kinds_and_gathers_functions() -> None:
    drawings = [Drawing("f", FUNCTION, {"main": {"parked": 1}}), Drawing("unsure", UNSURE), Drawing("g", FUNCTION)]
    assert (
        "\n" + as_mermaid(drawings, downwards=True)
        == """
flowchart TB
  subgraph k1["unsure"]
    direction TB
    k1s0["Begin"]
    k1s1["Stop"]
    k1s2["Middle"]
    k1s3{{"#63;"}}:::unknown
    k1s4(["end"])
    k1s0 --> k1s2
    k1s0 --> k1s3
    k1s2 -.->|"later"| k1s3
    k1s2 --> k1s4
  end
  subgraph functions["functions"]
    direction TB
    f0["f<br/>1 parked"]
    f1["g"]
  end
  classDef unknown stroke-dasharray:4 3
"""
    )
    assert as_mermaid([Drawing("f", FUNCTION)]).splitlines()[1:] == [
        '  k0s0["main"]',
        '  k0s1(["end"])',
        "  k0s0 --> k0s1",
    ]


def test_mermaid_lets_no_name_out_of_its_quotes() -> None:
    text = as_mermaid([_hostile(), Drawing("other", FUNCTION)])
    label = r'"(?:[A-Za-z0-9 _,.-]|<br/>|#[0-9]+;)*"'
    node = rf"    (?:k0s|f)[0-9]+(?:\[{label}\]|\(\[{label}\]\)|\{{\{{{label}\}}\}})(?:::[a-z]+)?"
    link = rf"    k0s[0-9]+ (?:-->|-\.->)(?:\|{label}\|)? k0s[0-9]+"
    rest = rf"flowchart LR|  subgraph (?:k0|functions)\[{label}\]|    direction LR|  end|  (?:classDef|linkStyle) .*"
    for each in text.splitlines():
        assert re.fullmatch(f"{node}|{link}|{rest}".replace("(?:::", "(?::::"), each), each


# Pictures -------------------------------------------------------------------------------------------


def parsed(svg: str) -> ET.Element:
    return ET.fromstring(svg)


def steps_in(root: ET.Element) -> dict[str, ET.Element]:
    return {each.attrib["data-step"]: each for each in root.iter(f"{SVG}g") if "data-step" in each.attrib}


def classes_of(root: ET.Element) -> dict[str, str]:
    return {name: each.attrib["class"] for name, each in steps_in(root).items()}


@pytest.mark.parametrize("graph", [GREETER, LOOP, UNSURE, FUNCTION, {}, {"A": [Edge("A"), Edge("A", LATER)]}])
@pytest.mark.parametrize("downwards", [None, True, False])
def test_pictures_are_xml_with_every_step_and_arrow(graph: Mapping[str, Sequence[Edge]], downwards: bool) -> None:
    drawing = Drawing("kind", graph, {"A": {"ready": 1}}, way=["A"] if graph == FUNCTION else [])
    root = parsed(as_svg([drawing], downwards=downwards))
    assert list(steps_in(root)) == drawing.nodes
    links = [each for each in root.iter(f"{SVG}g") if each.attrib.get("class", "").startswith("link")]
    assert len(links) == len(drawing.links)
    assert root.attrib["viewBox"] == f"0 0 {root.attrib['width']} {root.attrib['height']}"


def test_a_picture_needs_nothing_from_elsewhere() -> None:
    svg = as_svg([Drawing("greeter", GREETER)])
    assert STYLE in svg
    assert "prefers-color-scheme:dark" in svg
    assert re.findall(r"https?://[^\"]+", svg) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"(?i)<script|url\(|@import|xlink|\bon\w+=|\bid=", svg)


def test_a_picture_in_a_page_brings_no_style_and_no_ground() -> None:
    svg = as_svg([Drawing("greeter", GREETER, {"Fetch": {"ready": 1}})], alone=False, titles=False)
    assert "<style" not in svg
    assert 'class="paper"' not in svg
    assert 'class="kind"' not in svg
    assert [each.text for each in parsed(svg).iter(f"{SVG}text")].count("ready") == 0  # no legend


def test_steps_can_be_links() -> None:
    drawings = [Drawing("greeter", GREETER), Drawing("hello", FUNCTION)]
    svg = as_svg(drawings, address=lambda kind, step: None if step == "Fetch" else f"/{kind}?a=1&step={step}")
    found = [each.attrib["href"] for each in parsed(svg).iter(f"{SVG}a")]
    assert found == ["/greeter?a=1&step=ReadName", "/greeter?a=1&step=SayHello", "/hello?a=1&step=main"]


def test_a_picture_shows_counts_with_a_legend() -> None:
    counts = {"ReadName": {state: i + 1000 for i, state in enumerate(STATES)}, "Old": {"parked": 1}}
    root = parsed(as_svg([Drawing("greeter", GREETER, counts), Drawing("f", FUNCTION, {"main": {"ready": 7}})]))
    steps = steps_in(root)
    assert [each.text for each in steps["ReadName"].iter(f"{SVG}text")] == [
        "ReadName", "1,000", "1,001", "1,002", "1,003", "1,004",
    ]  # fmt: skip
    told = "ReadName; 1,000 ready, 1,001 scheduled, 1,002 running, 1,003 waiting, 1,004 parked"
    assert steps["ReadName"].findtext(f"{SVG}title") == told
    assert steps["Old"].attrib["class"] == "step stranger"
    assert [each.text for each in steps["f"].iter(f"{SVG}text")] == ["f", "7"]
    texts = [each.text for each in root.iter(f"{SVG}text")]
    assert texts[-len(STATES) :] == list(STATES)


def test_a_picture_shows_the_way_of_a_task() -> None:
    root = parsed(as_svg([Drawing("greeter", GREETER, way=["ReadName", "Fetch", "Fetch", "Fetch"])]))
    assert classes_of(root) == {
        "ReadName": "step visited",
        "Fetch": "step current",
        "SayHello": "step dim",
        "end": "end dim",
    }
    links = [each.attrib["class"] for each in root.iter(f"{SVG}g") if each.attrib.get("class", "").startswith("link")]
    assert links == ["link dim", "link later taken", "link dim", "link later taken", "link dim"]
    labels = [each.text for each in root.iter(f"{SVG}text") if each.attrib["class"] == "label"]
    assert labels == ["later", "later \u00d72"]


def test_a_wide_graph_is_drawn_downwards() -> None:
    chain = {f"Step{i}": [Edge(f"Step{i + 1}" if i < 11 else END)] for i in range(12)}
    width, height = _measures(as_svg([Drawing("chain", chain)]))
    assert width < 300 < 900 < height
    width, height = _measures(as_svg([Drawing("chain", chain)], downwards=False))
    assert height < 300 < 1500 < width


def test_no_name_does_harm() -> None:
    drawing = _hostile()
    svg = as_svg([drawing, Drawing("f", FUNCTION)], address=lambda kind, step: f"?{kind}.{step}")
    root = parsed(svg)
    assert {each.tag.removeprefix(SVG) for each in root.iter()} == {
        "svg", "title", "style", "rect", "g", "text", "path", "circle", "a",
    }  # fmt: skip
    allowed = {"class", "data-step", "href", "d", "x", "y", "rx", "r", "cx", "cy", "width", "height", "transform"}
    for each in root.iter():
        assert each is root or each.attrib.keys() <= allowed
    assert not set("\x00\x1b\u202e\u2028\ud800") & set(svg)
    text = as_text([drawing])
    assert not set("\x00\x1b\u202e\u2028\ud800") & set(text)
    assert max(map(len, text.splitlines())) < 120


def _hostile() -> Drawing:
    graph = {name: [Edge(other) for other in HOSTILE] for name in HOSTILE}
    return Drawing(HOSTILE[0], graph, {name: {"ready": 1} for name in HOSTILE}, way=[*HOSTILE, "\r\n\x1b]0;x\x07"])


def _measures(svg: str) -> tuple[float, float]:
    root = parsed(svg)
    return float(root.attrib["width"]), float(root.attrib["height"])


# Where things go ------------------------------------------------------------------------------------


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[str, Point], list[tuple[str, str]], dict[int, Point]]:
    count = draw(st.integers(1, 9))
    names = [f"N{i}" for i in range(count)]
    sizes = {name: (draw(st.sampled_from([40.0, 106.0, 250.0])), draw(st.sampled_from([26.0, 38.0]))) for name in names}
    pairs = st.tuples(st.sampled_from(names), st.sampled_from(names))
    links = draw(st.lists(pairs, max_size=18, unique=True))
    labelled = draw(st.sets(st.integers(0, len(links) - 1))) if links else set()
    return sizes, links, dict.fromkeys(labelled, (31.0, 14.0))


@settings(max_examples=100)
@given(graphs(), st.booleans())
def test_nothing_overlaps_and_lines_go_around_boxes(
    graph: tuple[dict[str, Point], list[tuple[str, str]], dict[int, Point]], even: bool
) -> None:
    sizes, links, labels = graph
    layout = arrange(sizes, links, labels, even=list(sizes) if even else ())
    assert arrange(sizes, links, labels, even=list(sizes) if even else ()) == layout
    assert layout.boxes.keys() == sizes.keys()
    for a, b in combinations(layout.boxes.values(), 2):
        beside = abs(a.along - b.along) - (a.length + b.length) / 2 >= 20
        above = abs(a.across - b.across) - (a.breadth + b.breadth) / 2 >= 20
        assert beside or above, (a, b)
    for (source, target), line in zip(links, layout.lines, strict=True):
        assert _on_edge(layout.boxes[source], line.begin)
        assert _on_edge(layout.boxes[target], line.curves[-1][-1])
        for point in _points(line):
            assert not any(_is_inside(box, point) for box in layout.boxes.values()), (source, target, point)
            assert _is_within(layout, point)


def test_a_chain_is_one_straight_line_and_a_main_line_too() -> None:
    sizes = dict.fromkeys("ABCDE", (100.0, 38.0))
    chain = arrange(sizes, [("A", "B"), ("B", "C"), ("C", "D"), ("D", "E")])
    assert len({round(box.across, 2) for box in chain.boxes.values()}) == 1
    # A leads to C first, past B: that line is straight, and B stands beside it.
    layout = arrange(sizes, [("A", "C"), ("A", "B"), ("B", "C"), ("C", "D"), ("D", "E")])
    middle = {name: round(box.across, 2) for name, box in layout.boxes.items()}
    assert {round(across, 2) for _, across in _points(layout.lines[0])} == {middle["A"]}
    assert middle["A"] == middle["C"] == middle["D"] == middle["E"] != middle["B"]


def test_crossings_are_untangled() -> None:
    sizes = dict.fromkeys("ABCXYZ", (100.0, 38.0))
    boxes = arrange(sizes, [("A", "Z"), ("B", "Y"), ("C", "X")]).boxes
    order = sorted("ABC", key=lambda name: boxes[name].across)
    assert sorted("XYZ", key=lambda name: boxes[name].across) == [{"A": "Z", "B": "Y", "C": "X"}[n] for n in order]


def _points(line: Line) -> Iterator[Point]:
    here = line.begin
    for a, b, end in line.curves:
        for i in range(1, 20):
            t = i / 20
            weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3)
            along, across = (
                sum(w * p[axis] for w, p in zip(weights, (here, a, b, end), strict=True)) for axis in (0, 1)
            )
            yield along, across
        here = end


def _is_inside(box: Box, point: Point) -> bool:
    return abs(point[0] - box.along) < box.length / 2 - 0.01 and abs(point[1] - box.across) < box.breadth / 2 - 0.01


def _on_edge(box: Box, point: Point) -> bool:
    along, across = abs(point[0] - box.along) - box.length / 2, abs(point[1] - box.across) - box.breadth / 2
    return max(along, across) == pytest.approx(0, abs=0.01)


def _is_within(layout: Layout, point: Point) -> bool:
    (left, right), (top, bottom) = layout.along, layout.across
    return left - 0.01 <= point[0] <= right + 0.01 and top - 0.01 <= point[1] <= bottom + 0.01


def test_steps_are_put_in_the_order_in_which_tasks_come_to_them() -> None:
    stored = {"Ask": ["Tell", "Wait"], "End": ["end"], "Tell": ["End"], "Wait": ["Ask"]}
    mixed = declared({step: stored[step] for step in ("Wait", "End", "Tell", "Ask")})
    assert in_order(mixed) == ["Ask", "Tell", "Wait", "End"]  # not Wait, which leads to all of them too, but farther
    assert in_order(mixed, "Wait") == ["Wait", "Ask", "Tell", "End"]
    assert in_order(declared({"B": ["end"], "A": ["B"], "Alone": ["end"]})) == ["A", "B", "Alone"]
    large = declared({f"S{n}": ["S0"] for n in range(1000)})
    assert in_order(large) == list(large)
