"""What is found wrong with a pipeline's file, without Spark."""

import subprocess
import sys
from pathlib import Path

import pytest

from pydanube.spark.pipelines import Invalid, Pipeline, Sink, Source, Step, check_pipeline, load_pipeline
from pydanube.spark.pipelines.loading import examine

GOOD = """\
name: orders
source:
  topic: /default/orders
  start: earliest
  decode: {subject: orders}
  watermark: {column: append_time, delay: 10m}
steps:
  - filter: amount > 0
  - dedupe: {by: [id], within: 10 minutes}
  - window:
      size: 5m
      by: [region]
      aggregate: {total: sum(amount)}
sink:
  topic: /default/totals
quarantine:
  delta: /lake/bad
tests:
  - name: nothing comes of nothing
    given: []
    expect: []
"""


def problems_of(folder: Path, text: str) -> list[str]:
    file = folder / "pipeline.yml"
    file.write_text(text)
    _, problems = examine(file)
    return [str(problem) for problem in problems]


def changed(*changes: tuple[str, str]) -> str:
    text = GOOD
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def test_a_good_file_has_no_problems(tmp_path: Path) -> None:
    assert problems_of(tmp_path, GOOD) == []
    assert load_pipeline(tmp_path / "pipeline.yml").libraries == ("delta",)


def test_everything_wrong_is_told_at_once_with_lines_and_nearest_names(tmp_path: Path) -> None:
    text = changed(
        ("  start: earliest", "  startt: earliest"),
        ("filter: amount > 0", "filter: (amount > 0"),
        ("within: 10 minutes", "within: soon"),
        ("size: 5m", "sizee: 5m\n      size: 5m"),
        ("topic: /default/totals", "topic: totals"),
    )
    *found, topic = problems_of(tmp_path, text)
    assert topic.startswith("line 16: sink.topic: invalid topic name 'totals': expected /namespace/topic")
    assert found == [
        "line 4: source.startt: unknown key 'startt': did you mean 'start'?",
        "line 8: steps[0].filter: this is no SQL: '(' is not closed",
        (
            "line 9: steps[1].dedupe.within: invalid duration 'soon': write a number and a unit, such as 10s, 5 minutes, "
            "1h or 2d"
        ),
        "line 11: steps[2].window.sizee: unknown key 'sizee': did you mean 'size'?",
    ]
    with pytest.raises(Invalid, match=r"pipeline.yml cannot be used:\n  line 4: source.startt"):
        load_pipeline(tmp_path / "pipeline.yml")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (("name: orders", "name: a/b"), "line 1: name: invalid name 'a/b'"),
        (("  topic: /default/orders\n", ""), "source: no source is given: it needs one of topic, topics, files"),
        (
            ("  topic: /default/orders\n", "  topic: /default/orders\n  topics: [/default/b]\n"),
            "source: topic and topics are given: keep one source",
        ),
        (("start: earliest", "start: someday"), "line 4: source.start: invalid start 'someday'"),
        (
            ("decode: {subject: orders}", "decode: {schema_file: o.json, schema_type: avro}"),
            "source.decode.schema_file: there is no file",
        ),
        (("decode: {subject: orders}", "decode: {schema_file: o.json}"), "schema_file and schema_type go together"),
        (("filter: amount > 0", "filter: a\n    drop: [b]"), "steps[0]: filter and drop are given: a step has exactly one"),
        (("filter: amount > 0", "name: x"), "steps[0]: no operation is given: a step has exactly one of sql, filter"),
        (("filter: amount > 0", "filter: a > 0\n    from: sourse"), "did you mean 'source'?"),
        (
            ("filter: amount > 0", "join: {with: source, on: [id]}"),
            "two streams are joined: say how far apart in time rows may be",
        ),
        (
            ("filter: amount > 0", "enrich: {with: source, on: [id], columns: [a]}"),
            "source is a stream: set static: true there, or use join",
        ),
        (("filter: amount > 0", "function: {name: no_such_module_here:f}"), "the module of 'no_such_module_here:f' is not found"),
        (("filter: amount > 0", "function: {name: json:dupms}"), "did you mean 'dumps'?"),
        (("filter: amount > 0", "function: {name: shout}"), "unknown function 'shout': write module:function"),
        (("filter: amount > 0", "map: {a: \"'x\"}"), "steps[0].map.a: this is no SQL: \"'\" at position 1 has no end"),
        (("within: 10 minutes", "within: 5m"), "the watermark on append_time is 600000 milliseconds late already"),
        (
            ("within: 10 minutes", "within: 10m, time: publish_time"),
            "rows have a watermark on append_time already, and no second one on publish_time",
        ),
        (("aggregate: {total: sum(amount)}", "aggregate: {}"), "there is nothing to make"),
        (("size: 5m", "size: 5m\n      slide: 10m"), "is not between nothing and the size"),
        (
            ("sink:\n", "  - dedupe: {by: [region], within: 10m}\nsink:\n"),
            "line 14: steps[3].dedupe: behind a window no state can be kept",
        ),
        (("topic: /default/totals", "console:"), "no sink is given"),
        (("topic: /default/totals", "topic: /default/totals\n  mode: complete"), "topic cannot be overwritten"),
        (("topic: /default/totals", "delta: /x\n  mode: update"), "use append, or complete"),
        (("topic: /default/totals", "iceberg: orders"), "name catalog, namespace and table"),
        (
            ("topic: /default/totals", "delta: {table: /x, partition_by: [days(a)]}"),
            "delta has partitions by column only",
        ),
        (("  delta: /lake/bad", "  delta: /lake/bad\n  mode: complete"), "quarantined rows are only ever added"),
        (("quarantine:\n  delta: /lake/bad\n", ""), "source.decode: bad messages would be lost"),
        (("decode: {subject: orders}", "decode: {subject: orders, on_error: fail}"), "so nothing ever goes here"),
        (("given: []", "given: {sourze: []}"), "unknown source 'sourze': did you mean 'source'?"),
        (("tests:", "trigger: {every: 5s, available_now: true}\ntests:"), "exclude each other"),
        (("expect: []", "expect: []\n  - {name: nothing comes of nothing, given: [], expect: []}"), "already"),
        (("name: orders\n", "name: orders\nname: orders\n"), "line 2: name: given before, in line 1"),
        (("name: orders\n", "name: [orders\n"), "this is not YAML"),
    ],
)  # fmt: skip
def test_rules(tmp_path: Path, change: tuple[str, str], text: str) -> None:
    (found, *_) = [each for each in problems_of(tmp_path, changed(change)) if text in each] or [None]
    assert found is not None, problems_of(tmp_path, changed(change))


def test_joins_of_streams_and_tables(tmp_path: Path) -> None:
    text = """\
name: joined
sources:
  orders: {topic: /default/orders, watermark: {column: append_time, delay: 5m}}
  payments: {topic: /default/payments}
  shops: {jdbc: {url: "jdbc:x", table: shops, options: {password: hush}}}
steps:
  - {filter: "true"}
  - {from: orders, join: {with: payments, on: [id], within: 10m, type: left_anti}}
  - {join: {with: shops, on: [shop], type: full}, name: payments}
  - {from: shops, join: {with: orders, on: [shop]}}
sink: {console: {}, mode: complete}
"""
    assert problems_of(tmp_path, text) == [
        (
            "line 5: sources.shops.jdbc.options.password: warning: whoever has this file has the secret in it: write "
            "${env:NAME} instead"
        ),
        "line 7: steps[0]: which rows? there are several sources: say `from: orders or payments or shops`",
        "line 8: steps[1].join: two streams are joined and payments has no watermark: set `watermark` of its source",
        "line 8: steps[1].join.type: left_anti of two streams never ends: use inner, left, right, full, left_semi",
        "line 9: steps[2].join.type: full of a stream with a table never ends: use inner, left, left_semi, left_anti",
        "line 9: steps[2].name: 'payments' is the name of something else already",
        "line 10: steps[3].join.with: begin with the stream: `from: orders`, and join the table to it",
    ]


def test_sql_may_name_what_it_reads(tmp_path: Path) -> None:
    text = """\
name: both
sources: {a: {topic: /default/a}, b: {topic: /default/b}}
steps: [{sql: "SELECT * FROM a UNION ALL SELECT * FROM b -- it's (all"}]
sink: {console: {}}
"""
    assert problems_of(tmp_path, text) == []


def test_a_pipeline_made_in_python_is_checked_alike() -> None:
    made = Pipeline(name="p", source=Source(topic="/default/a"), steps=[Step(filter="(")], sink=Sink())
    assert [str(each) for each in check_pipeline(made)] == [
        (
            "sink: no sink is given: it needs one of topic, iceberg, delta, parquet, jdbc, kafka, console (write "
            "`console: {}` for one without settings)"
        ),
        "steps[0].filter: this is no SQL: '(' is not closed",
    ]


def test_checking_loads_no_spark(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yml").write_text(GOOD)
    (tmp_path / "bad.yml").write_text(changed(("sink:", "sinc:")))
    script = (
        "import sys\n"
        "from pydanube.cli.main import main\n"
        "try:\n"
        f"    main(['pipeline', 'check', '-o', 'json', *{[str(tmp_path / 'pipeline.yml'), str(tmp_path / 'bad.yml')]!r}])\n"
        "except SystemExit as end:\n"
        "    print(end.code, 'pyspark' in sys.modules)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout.endswith("1 False\n")
    assert '"valid": true' in ran.stdout
    assert "did you mean 'sink'?" in ran.stdout
