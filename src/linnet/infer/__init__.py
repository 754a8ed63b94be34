"""Running a model: `generate` goes on from a prompt, `Chat` answers, `score` says how likely a text is, `score_choices`
which of several; `classify`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from linnet._lazy import lazy as _lazy

if TYPE_CHECKING:
    from linnet.infer.chat import Answer as Answer
    from linnet.infer.chat import Chat as Chat
    from linnet.infer.choices import Accuracy as Accuracy
    from linnet.infer.choices import ChoiceEncoder as ChoiceEncoder
    from linnet.infer.choices import ChoicesScore as ChoicesScore
    from linnet.infer.choices import ScoredRow as ScoredRow
    from linnet.infer.choices import score_choices as score_choices
    from linnet.infer.classification import Guess as Guess
    from linnet.infer.classification import classify as classify
    from linnet.infer.generation import Sampling as Sampling
    from linnet.infer.generation import generate as generate
    from linnet.infer.loaded_model import LoadedModel as LoadedModel
    from linnet.infer.loaded_model import TextScore as TextScore
    from linnet.infer.loading import load as load
    from linnet.infer.scoring import Candidate as Candidate
    from linnet.infer.scoring import Prediction as Prediction
    from linnet.infer.scoring import Score as Score
    from linnet.infer.scoring import score as score
    from linnet.infer.scoring import score_batches as score_batches
    from linnet.infer.scoring import top_tokens as top_tokens
    from linnet.infer.stop_strings import StopStrings as StopStrings
    from linnet.infer.stream_decoder import StreamDecoder as StreamDecoder
    from linnet.infer.text_options import TextOptions as TextOptions
    from linnet.infer.text_stream import TextStream as TextStream

__all__, __getattr__, __dir__ = _lazy(__name__)
