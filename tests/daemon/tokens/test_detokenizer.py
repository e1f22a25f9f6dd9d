"""Text is cut where SGLang's detokenizer cuts it, whatever the tokens are."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from token_vocabulary import make_tokenizer
from tokenizers import Tokenizer, decoders, models

from pdmuxd.daemon.tokens.detokenizer import IncrementalText, Vocabulary
from pdmuxd.engine.core.errors import EngineError
from pdmuxd.engine.link.token_frames import Sample

UNFINISHED = "\ufffd"
HAN = re.compile(
    "[\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f"
    "\U0002b820-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f]"
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "tokenizer.json"
    made = make_tokenizer(path)
    return made, path


@pytest.fixture(scope="module")
def vocabulary(tokenizer):
    return Vocabulary(tokenizer[1], ())


def whole_words(text):
    """`find_printable_text` of sglang/utils.py: characters of Chinese are words by themselves."""
    if text.endswith("\n") or HAN.match(text[-1:]):
        return text
    return text[:-1] if HAN.match(text[-2:-1]) else text[: text.rfind(" ") + 1]


class Reference:
    """SGLang's `_decode_batch_token_id_output` of one request that has not ended, line by line."""

    def __init__(self, tokenizer, context, skip):
        self.decode = lambda ids: tokenizer.decode(ids, skip_special_tokens=skip) if ids else ""
        self.size = tokenizer.get_vocab_size()
        self.ids, self.surr, self.read = self.clamp(context), 0, len(context)
        self.decoded, self.sent = 0, 0

    def clamp(self, token_ids):
        return [token_id if token_id < self.size else 0 for token_id in token_ids]

    def push(self, token_ids):
        self.ids += self.clamp(token_ids)
        surr_text = self.decode(self.ids[self.surr : self.read])
        new_text = self.decode(self.ids[self.surr :])[len(surr_text) :]
        pending = self.sent - self.decoded
        if new_text and not new_text.endswith(UNFINISHED):
            self.decoded += len(new_text)
            self.surr, self.read = self.read, len(self.ids)
            self.sent = self.decoded
            return new_text[pending:]
        printable = whole_words(new_text)
        self.sent = self.decoded + len(printable)
        return printable[pending:]


steps = st.lists(st.lists(st.integers(0, 399), min_size=1, max_size=3), max_size=30)


@given(context=st.lists(st.integers(0, 399), max_size=5), steps=steps, skip=st.booleans())
def test_texts_are_sglangs_step_by_step(tokenizer, vocabulary, context, steps, skip):
    text = IncrementalText(vocabulary, context, skip_special_tokens=skip)
    reference = Reference(tokenizer[0], context, skip)
    assert [text.push(step) for step in steps] == [reference.push(step) for step in steps]


def sentence_pieces(path):
    """As Llama 2 has it: words behind a mark, bytes by their names."""
    words = ["▁the", "▁quick", "qu", "ick", "▁", "a", "b", *(f"<0x{byte:02X}>" for byte in range(256))]
    made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="a"))
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    made.save(str(path))
    return made


def joined_words(path):
    made = Tokenizer(models.WordLevel({"a": 0, " b": 1, "ü ": 2, "\ufffd": 3, "": 4}, unk_token="a"))
    made.decoder = decoders.Fuse()
    made.save(str(path))
    return made


@pytest.fixture(scope="module", params=[make_tokenizer, sentence_pieces, joined_words])
def any_tokenizer(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabularies") / "tokenizer.json"
    made = request.param(path)
    return made, Vocabulary(path, ())


@given(data=st.data(), skip=st.booleans())
def test_texts_of_single_tokens_are_sglangs_whatever_the_decoder_does(any_tokenizer, data, skip):
    made, vocabulary = any_tokenizer
    ids = st.integers(0, made.get_vocab_size())
    context, steps = data.draw(st.lists(ids, max_size=3)), data.draw(st.lists(ids, max_size=30))
    text = IncrementalText(vocabulary, context, skip_special_tokens=skip)
    reference = Reference(made, context, skip)
    assert [text.push_one(token_id).text for token_id in steps] == [reference.push([each]) for each in steps]


@given(data=st.data(), skip=st.booleans())
def test_texts_are_sglangs_when_single_tokens_and_several_take_turns(any_tokenizer, data, skip):
    made, vocabulary = any_tokenizer
    ids = st.integers(0, made.get_vocab_size())
    steps = data.draw(st.lists(st.lists(ids, min_size=1, max_size=3), max_size=20))
    text, reference = IncrementalText(vocabulary, (), skip_special_tokens=skip), Reference(made, (), skip)
    said = [text.push_one(step[0]).text if len(step) == 1 else text.push(step) for step in steps]
    assert said == [reference.push(step) for step in steps]


@given(words=st.text(alphabet="the quick äöü 数字 🦊\n", max_size=40))
def test_a_whole_text_comes_back_when_its_tokens_come_one_by_one(tokenizer, vocabulary, words):
    token_ids = tokenizer[0].encode(words).ids
    text = IncrementalText(vocabulary, ())
    assert "".join(text.push([token_id]) for token_id in token_ids) == words
    text = IncrementalText(vocabulary, ())
    assert "".join(text.push_one(token_id).text for token_id in token_ids) == words


def test_half_a_character_waits_for_its_other_half(tokenizer, vocabulary):
    first, *others = tokenizer[0].encode("🦊").ids
    text = IncrementalText(vocabulary, ())
    assert others
    assert text.push([first]) == ""
    assert text.push(others) == "🦊"


def test_what_is_no_token_is_read_as_the_first_one(vocabulary):
    text = IncrementalText(vocabulary, (-7, 10**12))
    assert text.push([10**12]) == IncrementalText(vocabulary, (0, 0)).push([0])


def test_a_tokenizer_is_refused_when_it_says_something_else(tokenizer):
    made, path = tokenizer
    right = Sample(token_ids=(50, 60), text=made.decode([50, 60]))
    Vocabulary(path, (right,))
    with pytest.raises(EngineError, match="other text"):
        Vocabulary(path, (right, Sample(token_ids=(50, 60), text="!" + right.text)))


def test_a_tokenizer_is_refused_when_it_is_none(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(EngineError, match="cannot be read"):
        Vocabulary(tmp_path / "tokenizer.json", ())
