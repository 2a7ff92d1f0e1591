"""Modules of the page with objects that others of the cluster make large, many, or unreadable."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import yaml

from tests.support.chromium import Chromium, Tab
from tests.support.ui_modules import modules, run

POD = """
const pod = (containers, labels = {}) => ({
  metadata: {name: 'web', namespace: 'shop', uid: 'u', creationTimestamp: '2026-01-01T00:00:00Z', resourceVersion: '2', labels},
  spec: {containers: Array.from({length: containers}, (_, n) => ({name: `c${n}`, image: 'x'.repeat(2000)}))},
  status: {
    message: 'm'.repeat(100000),
    containerStatuses: Array.from({length: containers}, (_, n) => (
      {name: `c${n}`, state: {waiting: {reason: 'r'.repeat(9999), message: 'm'.repeat(9999)}}})),
  },
});
"""


@pytest.fixture(scope="module")
def page(browser: Chromium) -> Iterator[Tab]:
    with modules(browser) as found:
        yield found


def test_the_summary_of_a_pod_has_a_limited_size(page: Tab) -> None:
    size, containers, more = run(
        page,
        "pods",
        body=f"""{POD} const found = pods.summary(pod(10000));
        return [JSON.stringify(found).length, found.containers.length, found.more];""",
    )
    assert size < 120_000 and (containers, more) == (50, 9950)


CELLS = """
const place = document.body.appendChild(document.createElement('div'));
const pods = Array.from({length: 5000}, (_, n) => ({
  uid: `u${n}`, name: `p${n}`, namespace: 'shop', kind: 'Pod', node: 'n1', cpu: 0, memory: 0,
  state: {level: 'ok', word: 'Running'}}));
const node = {name: 'n1', kind: 'Node', state: {level: 'ok', word: 'Ready'}, cpu: 1, memory: 1, pods: 5000};
nodes_view.showNodes(place, [node], pods, 0);
"""


def test_a_tile_has_a_limited_number_of_cells_and_counts_all_pods(page: Tab) -> None:
    cells, more, said = run(
        page,
        "nodes_view",
        body=CELLS
        + """const meters = place.querySelectorAll('[role=meter]');
        const said = [place.querySelector('.tile > .hint').textContent, meters[2].getAttribute('aria-valuetext')];
        const found = [place.querySelectorAll('.cell').length, ...said];
        place.remove(); return found;""",
    )
    assert (cells, more, said) == (300, "4700 more pods", "5000 of 5000")


def test_the_tab_key_comes_back_to_the_cell_that_arrows_have_reached(page: Tab) -> None:
    found = run(
        page,
        "nodes_view",
        body=CELLS
        + """const [first, second] = place.querySelectorAll('.cell');
        place.addEventListener('keydown', (event) => nodes_view.moveFocus(place, event));
        first.focus();
        first.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true}));
        nodes_view.showNodes(place, [node], pods, 1);
        const number = place.querySelectorAll('.cell[tabindex="0"]').length;
        const reached = [document.activeElement === second, number, second.tabIndex];
        place.remove(); return reached;""",
    )
    assert found == [True, 1, 0]


def test_changes_that_the_page_does_not_show_are_not_recorded(page: Tab) -> None:
    recorded = run(
        page,
        "live",
        "pods",
        "history",
        body=f"""{POD}
        const found = new live.Collection('pods', '/api/v1/pods', pods.summary);
        found.history = new history.History();
        found.history.replace('pods', new Map(), new Map(), 1);
        for (let n = 0; n < 100; n++) found.apply({{type: 'MODIFIED', object: pod(3, {{n: String(n)}})}});
        found.history.replace('pods', found.items, new Map(found.items), Date.now());
        return found.history.changes.length;""",
    )
    assert recorded == 1


def test_of_several_changes_in_a_second_the_last_one_is_recorded(page: Tab) -> None:
    states = run(
        page,
        "history",
        body="""const found = new history.History();
        found.replace('pods', new Map(), new Map(), 1000);
        for (let n = 0; n < 1000; n++) found.change('pods', 'web', {n}, 5000 + n / 2);
        found.change('pods', 'web', null, 6000);
        const of = (time) => found.at(time).get('pods').get('web')?.n ?? null;
        return [found.changes.length, of(4999), of(5999), of(6000)];""",
    )
    assert states == [2, None, 999, None]


def test_the_record_has_a_limited_size_and_keeps_the_newest_changes(page: Tab) -> None:
    found = run(
        page,
        "history",
        body="""const found = new history.History(1e6);
        found.replace('pods', new Map(), new Map(), 1000);
        let most = 0;
        for (let n = 0; n < 1000; n++) {
          found.change('pods', `web-${n % 7}`, {n, text: 'x'.repeat(10000)}, 2000 + n * 1000);
          most = Math.max(most, found.size);
        }
        const sum = found.changes.reduce((total, each) => total + each.size, 0);
        const of = (time) => found.at(time).get('pods');
        return {most, sum, size: found.size, number: found.changes.length, from: found.from, latest: found.latest.size,
          known: of(found.from).size, last: of(1e9).get('web-5').n, before: found.at(2000)};""",
    )
    assert found["most"] <= 1e6 and found["sum"] == found["size"] and 80 <= found["number"] <= 100
    assert found["latest"] <= 7 and found["known"] == 7 and found["last"] == 999 and found["before"] is None
    assert found["from"] > 2000


def test_changes_beyond_the_limit_move_the_beginning_of_what_is_recorded(page: Tab) -> None:
    found = run(
        page,
        "history",
        body="""const found = new history.History();
        found.replace('pods', new Map(), new Map([['a', 1]]), 10);
        for (let n = 0; n < 60000; n++) found.change('pods', `p${n % 7}`, n, 1000 * (n + 1));
        const last = found.at(1e9).get('pods');
        found.replace('pods', last, new Map([['b', 2]]), 1e10);
        return [found.changes.length <= 50000, found.from > 5000, found.at(20), last.size, [...found.at(1e11).get('pods')],
          found.at(60000000).get('pods').size];""",
    )
    assert found == [True, True, None, 8, [["b", 2]], 8]


SERVER = """
window.asked = [];
const real = window.fetch;
window.fetch = async (url) => {
  const {pathname, searchParams} = new URL(url, location.href);
  asked.push([pathname, Number(searchParams.get('limit'))]);
  const answer = (body, status = 200) => new Response(JSON.stringify(body), {status});
  if (pathname === '/watch') return new Response(new ReadableStream());
  if (pathname !== '/api/v1/pods') return answer({items: [], metadata: {resourceVersion: '1'}});
  const from = Number(searchParams.get('continue') || 0), limit = Number(searchParams.get('limit'));
  const large = from + limit > LONG && from < LONG + 1 && limit > MOST;
  if (large) return answer({message: 'is longer than', reason: 'AnswerTooLong'}, 502);
  const items = Array.from({length: Math.min(limit, 600 - from)}, (_, n) => ({metadata: {name: `p${from + n}`}}));
  return answer({items, metadata: {resourceVersion: '1', continue: from + limit < 600 ? String(from + limit) : ''}});
};
const list = ['/api/v1/nodes', '/api/v1/pods'].map((path) => new live.Collection(path.slice(8), path, (each) => each));
const states = [];
const found = new live.Live(list, {changed() {}, state: (name) => states.push(name)});
found.run();
while (!states.length) await new Promise((resolve) => setTimeout(resolve, 5));
found.stop();
window.fetch = real;
return {states, asked, items: list.map((each) => each.items.size), refused: list.map((each) => each.refused)};
"""


def test_a_collection_with_large_objects_is_listed_in_smaller_parts(page: Tab) -> None:
    found = run(page, "live", body=SERVER.replace("LONG", "520").replace("MOST", "5"))
    assert found["states"] == ["live"] and found["items"] == [0, 600] and found["refused"] == ["", ""]
    sizes = [limit for path, limit in found["asked"] if path == "/api/v1/pods"]
    assert sizes[:4] == [500, 500, 50, 5] and len(sizes) < 30


def test_a_collection_that_cannot_be_listed_keeps_none_of_the_others_from_being_live(page: Tab) -> None:
    found = run(page, "live", body=SERVER.replace("LONG", "0").replace("MOST", "0"))
    assert found["states"] == ["live"] and found["refused"] == ["", "is longer than"]
    assert [limit for path, limit in found["asked"] if path == "/api/v1/pods"] == [500, 50, 5, 1]


HIDDEN = [
    0x200B,
    0x202E,
    0x2800,
    0x3164,
    0x115F,
    0x1160,
    0xFFA0,
    0x1D159,
    0x034F,
    0x17B4,
    0x180B,
    0x2065,
    0x206A,
    0xFE0F,
]
HIDDEN += [0xFFF9, 0xE0001, 0xE0041, 0xE0100, 0xE01EF, 0x00AD, 0x2028, 0xFEFF, 0x85]


def test_characters_without_a_picture_are_shown_by_their_number(page: Tab) -> None:
    text = "".join(f"a{chr(each)}" for each in HIDDEN)
    shown = run(page, "dom", body=f"return dom.plain({json.dumps(text)});")
    assert shown == "".join(f"a\\u{{{each:x}}}" for each in HIDDEN)
    plain = "Grüße, 你好, שלום, नमस्ते 🙂\t\n"
    assert run(page, "dom", body=f"return dom.plain({json.dumps(plain)});") == plain


def test_a_collection_with_a_limit_lists_and_keeps_no_more(page: Tab) -> None:
    found = run(
        page,
        "live",
        body="""const real = window.fetch;
        let asked = 0;
        window.fetch = async () => {
          asked += 1;
          const items = Array.from({length: 500}, (_, n) => ({metadata: {name: `e${asked}-${n}`}}));
          return new Response(JSON.stringify({items, metadata: {resourceVersion: '1', continue: 'more'}}));
        };
        const events = new live.Collection('events', '/api/v1/events', (each) => each, {}, 1000);
        await new live.Live([events], {changed() {}, state() {}}).list(events);
        window.fetch = real;
        const listed = events.items.size;
        for (let n = 0; n < 100; n++) events.apply({type: 'ADDED', object: {metadata: {name: `new${n}`}}});
        const few = new live.Collection('events', '/api/v1/events', (each) => each, {}, 1);
        for (let n = 0; n < 2; n++) few.apply({type: 'ADDED', object: {metadata: {name: `new${n}`}}});
        return [asked, listed, events.more, events.items.size, events.items.has('/new99'), few.more];""",
    )
    assert found == [2, 1000, True, 1000, True, True]


def test_a_long_line_of_a_terminal_is_split_once_a_row(page: Tab) -> None:
    """A row is made from its characters when a part is written to it, not for each of them."""
    splits, last, row = run(
        page,
        "screen",
        body="""const shown = new screen.Screen(80, 24);
        const iterate = String.prototype[Symbol.iterator];
        let splits = 0;
        String.prototype[Symbol.iterator] = function () { splits += 1; return iterate.call(this); };
        try {
          for (let part = 0; part < 10; part++) shown.write('ab'.repeat(8000));
          shown.write('😀'.repeat(100) + '\\rover');
        } finally {
          String.prototype[Symbol.iterator] = iterate;
        }
        return [splits, shown.lines[shown.row], shown.lines[shown.row - 2]];""",
    )
    assert splits < 3 * 160_000 / 80
    assert row == "ab" * 40 and last == "over" + "\U0001f600" * 16


LOG = """
const pre = document.body.appendChild(document.createElement('pre'));
const lines = new logs.Lines(pre);
const [frame, cancel] = [window.requestAnimationFrame, window.cancelAnimationFrame];
const done = (found) => {
  pre.remove();
  Object.assign(window, {requestAnimationFrame: frame, cancelAnimationFrame: cancel});
  return found;
};
"""


def test_a_log_without_line_ends_has_a_limited_size_and_is_laid_out_in_parts(page: Tab) -> None:
    whole, longest, parts, last = run(
        page,
        "logs",
        body=LOG
        + """for (let n = 0; n < 100; n++) { lines.add('x'.repeat(65536)); lines.show(); }
        lines.add('the end'); lines.show();
        const found = pre.textContent;
        const longest = Math.max(...found.split('\\n').map((each) => each.length));
        return done([found.length, longest, pre.children.length, found.slice(-7)]);""",
    )
    assert 1_000_000 < whole < 2_200_000 and longest <= (16 << 10) + 1 and 10 < parts < 60 and last == "the end"


def test_a_log_of_lines_of_several_pieces_is_the_same_text(page: Tab) -> None:
    wanted = "".join(f"line {number} {'y' * (number % 50)}\n" for number in range(3000)) + "unfinished"
    shown = run(
        page,
        "logs",
        body=LOG
        + f"""const text = {json.dumps(wanted)};
        for (let from = 0; from < text.length; from += 997) {{
          lines.add(text.slice(from, from + 997));
          if (from % 3) lines.show();
        }}
        lines.show();
        return done(pre.textContent);""",
    )
    assert shown == wanted


def test_a_log_in_a_tab_without_frames_is_kept_to_its_limit_and_shown(page: Tab) -> None:
    most, size, shown = run(
        page,
        "logs",
        body=LOG
        + """window.requestAnimationFrame = () => 0;
        window.cancelAnimationFrame = () => {};
        let most = 0;
        for (let n = 0; n < 200; n++) {
          lines.add(`${'z'.repeat(99)}\\n`.repeat(1000));
          most = Math.max(most, lines.size);
        }
        lines.add('the end');
        while (!pre.textContent) await new Promise((resolve) => setTimeout(resolve, 20));
        return done([most, lines.waiting.length, pre.textContent]);""",
    )
    assert most <= 2_000_000 and size == 0 and shown.endswith("the end") and len(shown) <= 2_100_000


YAML = "\u00a0\u200d\U0001f468\u200d\U0001f469\U000e0041\u2028\ufeff\uffff\x85\x7f\t\n\"'\\: # - yes"


def test_yaml_that_is_copied_is_the_object(page: Tab) -> None:
    wanted = {"kind": "Pod", "metadata": {"name": "y", "annotations": {"a" + YAML: YAML}}, "n": [1, "1", None, {}, []]}
    shown = run(
        page, "yaml", "dom", body=f"const found = yaml.yaml({json.dumps(wanted)}); return [found, dom.plain(found)];"
    )
    assert yaml.safe_load(shown[1]) == wanted and shown[0] == shown[1]
