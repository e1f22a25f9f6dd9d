"""Text is cut where SGLang's detokenizer cuts it, whatever the tokens are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from token_vocabulary import make_tokenizer

from pdmuxd.daemon.tokens.detokenizer import IncrementalText, Vocabulary
from pdmuxd.engine.core.errors import EngineError
from pdmuxd.engine.link.token_frames import Sample

UNFINISHED = "\ufffd"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "tokenizer.json"
    made = make_tokenizer(path)
    return made, path


@pytest.fixture(scope="module")
def vocabulary(tokenizer):
    return Vocabulary(tokenizer[1], ())


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
        printable = new_text if new_text.endswith("\n") else new_text[: new_text.rfind(" ") + 1]
        self.sent = self.decoded + len(printable)
        return printable[pending:]


steps = st.lists(st.lists(st.integers(0, 399), min_size=1, max_size=3), max_size=30)


@given(context=st.lists(st.integers(0, 399), max_size=5), steps=steps, skip=st.booleans())
def test_texts_are_sglangs_step_by_step(tokenizer, vocabulary, context, steps, skip):
    text = IncrementalText(vocabulary, context, skip_special_tokens=skip)
    reference = Reference(tokenizer[0], context, skip)
    assert [text.push(step) for step in steps] == [reference.push(step) for step in steps]


@given(words=st.text(alphabet="the quick äöü 数字 🦊\n", max_size=40))
def test_a_whole_text_comes_back_when_its_tokens_come_one_by_one(tokenizer, vocabulary, words):
    token_ids = tokenizer[0].encode(words).ids
    text = IncrementalText(vocabulary, ())
    assert "".join(text.push([token_id]) for token_id in token_ids) == words


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
