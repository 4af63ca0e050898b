"""Settings: read from YAML and --set, checked once, frozen, and their digest."""

import json
import subprocess
import sys

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from kronos.config import RunConfig, load_config, validated
from kronos.errors import ConfigError
from kronos.recipes import baseline, full, small_gpu


@pytest.fixture
def yaml_file(tmp_path):
    def write(text):
        path = tmp_path / "run.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def _told(call, *arguments, **named):
    """What a ConfigError says, "" where there is none; any other error is not caught."""
    try:
        call(*arguments, **named)
    except ConfigError as error:
        return str(error)
    return ""


def _message(call, *arguments):
    text = _told(call, *arguments)
    assert text.splitlines() == [text], "refused in one line"
    return text


@pytest.mark.parametrize(
    ("override", "read", "value"),
    [
        ("training.batch_size=16", lambda run: run.training.batch_size, 16),
        (" training.batch_size = 16", lambda run: run.training.batch_size, 16),
        ("training.learning_rate=1e-3", lambda run: run.training.learning_rate, 1e-3),
        ("training.checkpointing=off", lambda run: run.training.checkpointing, "off"),
        ("training.teacher_forcing=true", lambda run: run.training.teacher_forcing, True),
        ("model.pretrained=null", lambda run: run.model.pretrained, None),
        ("model.forecaster.n_layers=1", lambda run: run.model.forecaster.n_layers, 1),
        ("data.bars=a=b.csv", lambda run: run.data.bars, "a=b.csv"),
        ("data.bars=行情.csv", lambda run: run.data.bars, "行情.csv"),
        ("data.symbol=000001", lambda run: run.data.symbol, "000001"),
        ("data.symbol=null", lambda run: run.data.symbol, None),
        ("data.columns=[open=首, low=2]", lambda run: run.data.columns, ("open=首", "low=2")),
        ("name=mine", lambda run: run.name, "mine"),
    ],
)
def test_an_override_changes_one_setting(override, read, value):
    before = small_gpu()
    after = before.with_overrides([override])
    assert read(after) == value
    where = override.partition("=")[0].strip().split(".")
    wanted = before.model_dump()
    section = wanted
    for part in where[:-1]:
        section = section[part]
    section[where[-1]] = value
    assert after.model_dump() == wanted


def test_of_two_overrides_of_one_setting_the_last_counts():
    run = baseline().with_overrides(["training.steps=3", "training.steps=4"])
    assert run.training.steps == 4


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("training.batchsize", "training.batch_size"),
        ("training.windw", "training.window"),
        ("trainin", "training"),
        ("model.forecaster.layers", "model.forecaster.n_layers"),
        ("scoring.samples", "scoring.sample_count"),
        ("training.batch_size.x", "training.batch_size"),
    ],
)
def test_an_unknown_override_names_the_nearest_setting(key, nearest):
    text = _message(baseline().with_overrides, [f"{key}=1"])
    assert repr(key) in text
    assert text.endswith(f"did you mean {nearest}?")


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("training.batch_size=0", ["training.batch_size", "greater than 0", "got 0"]),
        ("training.batch_size=many", ["training.batch_size", "'many'"]),
        ("training.batch_size=1.5", ["training.batch_size", "1.5"]),
        ("training.batch_size=", ["training.batch_size", "None"]),
        ("training.batch_size=true", ["training.batch_size", "a number", "True"]),
        ("training.learning_rate=.nan", ["training.learning_rate", "nan"]),
        ("training.learning_rate=.inf", ["training.learning_rate", "inf"]),
        ("training.precision=fp16", ["training.precision", "'bf16'", "'fp16'"]),
        ("training.checkpointing=on", ["training.checkpointing", "'on'"]),
        ("training.seed=-1", ["training.seed", "-1"]),
        (f"training.seed={2**63}", ["training.seed", str(2**63)]),
        ("data.validation_share=1", ["data.validation_share", "less than 1", "got 1"]),
        ("scoring.top_p=0", ["scoring.top_p", "got 0"]),
        ("model.max_context=0", ["model.max_context", "got 0"]),
        ("model.tokenizer.s1_bits=7", ["model", "7+6 and 6+6"]),
        ("name=../x", ["name", "'../x'"]),
        ("training=5", ["training", "got 5"]),
        ("training.steps", ["section.setting=value", "'training.steps'"]),
        ("training.steps=[", ["cannot read", "'training.steps=['"]),
        ("training.steps=2024-13-45", ["cannot read", "2024-13-45"]),
        ("training.steps=!!bool x", ["cannot read", "!!bool x"]),
        ("training.steps=0b_", ["cannot read", "0b_"]),
        ("training.steps=" + "[" * 5000, ["cannot read", "training.steps=[[["]),
        ("training.steps=" + "9" * 5000, ["cannot read", "training.steps=999"]),
    ],
)
def test_a_wrong_override_is_told_in_one_line_with_its_value(override, parts):
    text = _message(baseline().with_overrides, [override])
    assert [part for part in parts if part not in text] == []
    assert len(text) < 400


def test_a_whole_run_reads_back_from_yaml(yaml_file):
    run = full().with_overrides(["data.bars=行情.csv", "training.teacher_forcing=true"])
    assert load_config(yaml_file(yaml.safe_dump(run.model_dump(), allow_unicode=True))) == run


def test_a_recipe_with_differences_changes_only_them(yaml_file):
    path = yaml_file(
        "recipe: small-gpu\nname: mine\n"
        "training:\n  batch_size: 8\n  checkpointing: off\nmodel:\n  forecaster: {n_layers: 1}\n"
    )
    wanted = [
        "name=mine",
        "training.batch_size=8",
        "training.checkpointing=off",
        "model.forecaster.n_layers=1",
    ]
    assert load_config(path) == small_gpu().with_overrides(wanted)


def test_a_byte_order_mark_and_an_alias_are_read(yaml_file):
    text = "\ufeffrecipe: baseline\ntraining: &t {seed: 3}\nscoring: {<<: *t}\n"
    run = load_config(yaml_file(text))
    assert (run.training.seed, run.scoring.seed) == (3, 3)


WHOLE = {"name": "x", "model": baseline().model.model_dump(), "training": {}}
MISSPELT = json.dumps({**WHOLE, "training": {"batchsize": 5}})


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["mapping of sections", "None"]),
        ("- a\n- b", ["mapping of sections", "['a', 'b']"]),
        ("just words", ["mapping of sections", "'just words'"]),
        ("a: b: c", ["cannot read", "line 1"]),
        ("a: [1,", ["cannot read"]),
        ("a: \x00", ["cannot read"]),
        ("recipe: nosuch", ["no recipe 'nosuch'", "baseline"]),
        ("recipe: [1]", ["no recipe"]),
        ("recipe: baseline\nrecipe: full", ["'recipe'", "twice"]),
        ("recipe: baseline\ntraining: {steps: 1, steps: 2}", ["'steps'", "twice"]),
        ("recipe: baseline\ntraining: {batchsize: 1}", ["did you mean training.batch_size?"]),
        ("recipe: baseline\ntrainig: {steps: 1}", ["'trainig'", "did you mean training?"]),
        ("recipe: baseline\ntraining.steps: 1", ["one key", "nest it: training: {steps"]),
        ("recipe: baseline\ntraining: {window: {a: 1}}", ["'training.window.a'"]),
        ("recipe: baseline\ntraining: &a {window: *a}", ["training.window"]),
        ("recipe: baseline\ntraining: &a {window: [*a]}", ["training.window"]),
        ("recipe: baseline\ntraining: null", ["training", "None"]),
        ("recipe: baseline\n1: {2: 3}", ["'1"]),
        ("recipe: baseline\n? [1]\n: 2", ["cannot read", "unhashable"]),
        ("recipe: baseline\ntraining: {steps: !!python/name:os.system }", ["cannot read"]),
        ("name: x\nmodel: {name: tiny}", ["model.tokenizer", "required"]),
        (MISSPELT, ["'training.batchsize'", "did you mean training.batch_size?"]),
        ("&a {x: *a}", ["'x'"]),
    ],
)
def test_a_wrong_yaml_is_told_in_one_line_with_the_file(yaml_file, text, parts):
    path = yaml_file(text)
    message = _message(load_config, path)
    assert [part for part in (str(path), *parts) if part not in message] == []


def test_an_unreadable_file_is_told_in_one_line(tmp_path):
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00\x01")
    for name, reason in [
        ("binary.yaml", "0xff"),
        ("absent.yaml", "No such file"),
        (".", "Is a directory"),
        ("two\nlines.yaml", "No such file"),
        ("nul\0.yaml", "null"),
    ]:
        text = _message(load_config, tmp_path / name)
        assert reason in text
        assert str(tmp_path) in text


_plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(text=st.text(max_size=60), key=st.sampled_from(["training.steps", "data.bars", "", "model"]))
def test_any_override_is_taken_or_told_in_one_line(text, key):
    for override in (text, f"{key}={text}", f"{text}={key}"):
        assert "\n" not in _told(baseline().with_overrides, [override])


@given(
    values=st.dictionaries(
        st.sampled_from([*RunConfig.model_fields]) | st.text() | st.integers(), _plain
    )
)
def test_any_settings_are_taken_or_told_in_one_line(values):
    for given_ in (values, {**baseline().model_dump(), **values}):
        assert "\n" not in _told(validated, given_, source="here")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_file_is_taken_or_told_in_one_line(tmp_path, content):
    path = tmp_path / "any.yaml"
    for start in (b"", b"recipe: baseline\n"):
        path.write_bytes(start + content)
        assert "\n" not in _told(load_config, path)


def test_settings_are_frozen_at_every_depth():
    run = baseline()
    for section in (run, run.model, run.model.tokenizer, run.training, run.data, run.scoring):
        with pytest.raises(ValidationError, match="frozen"):
            section.__setattr__(next(iter(type(section).model_fields)), 1)
    assert hash(run) == hash(baseline())


def _leaves(values, path=()):
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*path, key))
        else:
            yield ".".join((*path, key)), value


def _changed(key, value):
    if key in OTHER_VALUES:
        return OTHER_VALUES[key]
    if isinstance(value, bool):
        return not value
    if isinstance(value, float):
        return value / 2 or 0.5
    return value + 1 if isinstance(value, int) else OTHER_WORDS.get(value, f"{value}x")


OTHER_WORDS = {"float32": "bf16", "off": "block", "constant": "one-cycle"}
OTHER_VALUES = {
    "data.columns": "[open=first]",
    "data.symbol": "000001",
    "data.timezone": "UTC",
    "data.dedupe": "last",
    "data.fill": "drop",
    "data.features": "[close, volume]",
    "data.time_features": "[hour]",
    "training.samples_per_epoch": 7,
}
HOW_NOT_WHAT = {"data.cache": "caches", "data.precompute_tokens": True, "data.workers": 2}
BITS = "s1_bits", "s2_bits"  # tokenizer and forecaster change them together


def test_the_digest_changes_with_every_setting_that_decides_the_result():
    run = baseline()
    digests = {run.sha256()}
    leaves = [
        (key, value)
        for key, value in _leaves(run.model_dump())
        if not (key.endswith(BITS) or key in HOW_NOT_WHAT)
    ]
    for key, value in leaves:
        digests.add(run.with_overrides([f"{key}={_changed(key, value)!s}"]).sha256())
    for bits in BITS:
        both = [f"model.{part}.{bits}" for part in ("tokenizer", "forecaster")]
        values = run.model_dump()
        for part in ("tokenizer", "forecaster"):
            values["model"][part][bits] += 1
        digests.add(validated(values, source=str(both)).sha256())
    assert len(digests) == 1 + len(leaves) + len(BITS)


def test_the_digest_leaves_out_what_only_says_how():
    run = baseline()
    other = run.with_overrides([f"{key}={value}" for key, value in HOW_NOT_WHAT.items()])
    assert other.data.precompute_tokens
    assert other != run
    assert other.sha256() == run.sha256()


def test_tokens_made_once_need_a_place():
    with pytest.raises(ConfigError, match=r"precompute_tokens keeps .* in data\.cache: name a"):
        baseline().with_overrides(["data.precompute_tokens=true"])


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("data.features=[close, vol]", "data.features.1: Input should be 'open'"),
        ("data.features=[]", "data.features"),
        ("data.time_features=[year]", "data.time_features.0: Input should be 'minute'"),
        ("data.workers=-1", "data.workers"),
        ("training.samples_per_epoch=0", "training.samples_per_epoch"),
    ],
)
def test_settings_of_the_data_have_rules(override, words):
    with pytest.raises(ConfigError) as caught:
        baseline().with_overrides([override])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_digest_does_not_depend_on_the_order_of_keys_or_the_process():
    run = small_gpu()
    values = run.model_dump()
    turned = {key: values[key] for key in reversed(values)}
    turned["training"] = dict(reversed(values["training"].items()))
    code = "from kronos.recipes import small_gpu; print(small_gpu().sha256())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONHASHSEED": "7"}
    )
    assert validated(turned, source="x").sha256() == run.sha256() == done.stdout.strip()
    assert run.with_overrides([]).sha256() == run.sha256()
    assert len(run.sha256()) == 64
