"""`ModelRecipe`: a model with its optimizer and step, made from a job. Torch is loaded when the model is realised."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar

from linnet import gguf, models
from linnet.errors import LinnetError
from linnet.recipes.flags import Flag, FlagGroups

if TYPE_CHECKING:
    from torch import Tensor

    from linnet.models import LanguageModel, ViT
    from linnet.recipes.job import Job
    from linnet.train import Hardware, RunData, TrainSettings
    from linnet.train.checkpoint import WeightsFormat
    from linnet.train.gradients import SumOrder
    from linnet.train.shards import MomentLayout
    from linnet.train.state import State
    from linnet.train.step import Batch, LossFunction, Step, StepObserver, StepResult

_Model = TypeVar("_Model", bound="LanguageModel | ViT")
AnyRecipe: TypeAlias = "ModelRecipe[Any]"

_DIVISORS = "rope_freqs.weight"
INIT_SCALE = Flag("init_scale", float, 1.0, "Times the usual size of the first weights.")


class ModelRecipe(ABC, Generic[_Model]):
    """What the recipes share. `realize` allocates and initialises the model, `build` makes its step, `step` trains.

    - `flags`: what it is asked for with, by the title of their group; `job` makes a job of their values.
    - `data_types`: the kinds of data it trains on; `options_type`: what a job holds for this recipe alone.
    """

    name: str
    flags: ClassVar[FlagGroups]
    data_types: ClassVar[tuple[type[Any], ...]]
    options_type: ClassVar[type[Any] | None] = None

    def __init__(
        self,
        settings: TrainSettings,
        hardware: Hardware,
        *,
        init_scale: float = 1.0,
        loss: LossFunction | None = None,
    ) -> None:
        self._settings, self._hardware, self._init_scale, self._loss = settings, hardware, init_scale, loss
        self._trained: _Model | None = None
        self._step: Step | None = None
        self.step_index = 0  # steps done, those before a restored checkpoint among them

    @classmethod
    @abstractmethod
    def job(cls, values: Mapping[str, Any]) -> Job:
        """The job that the values of all flags ask for."""

    @classmethod
    def from_job(cls, job: Job, data: RunData, hardware: Hardware, resumed: bool) -> tuple[AnyRecipe, Job]:
        """The recipe of a job, built, and the job with what was found out on the way.

        `resumed`: it goes on from a checkpoint, which the caller puts back.
        """
        recipe = cls(job.settings, hardware, init_scale=job.init_scale, loss=job.loss)
        recipe.realize(job.model)
        recipe.build()
        return recipe, job

    @classmethod
    def admitted(cls, job: Job, *, force: bool = False) -> Job:
        """The job with what the files are that it needs besides its data; one that is another than the run began with
        is refused, unless `force` says so. Nothing is loaded yet.
        """
        return job

    @classmethod
    def settled(cls, job: Job, tokens: int, steps: int | None = None, *, corpus: int | None = None) -> TrainSettings:
        """The settings with what a rule gives for those that are not given; they are then what the run keeps.

        `tokens`: or images, of a step; `steps`: as many as are expected, where the settings have none; `corpus`: tokens
        or images of one pass over the data, where it is known how many passes there will be.
        """
        return job.settings

    @classmethod
    def begins_from_seed(cls, job: Job) -> bool:
        """Are the first weights a function of the seed alone, so that `first_model` can make them again?"""
        return True

    @classmethod
    def first_model(cls, job: Job) -> Any:
        """The model as it was before the first step of a job that begins from its seed."""
        return models.build(job.model, job.settings.seed, job.init_scale)

    @property
    def trained(self) -> _Model:
        """The model that the optimizer works on, once it is realised."""
        if self._trained is None:
            raise LinnetError("the recipe has no model yet; call realize(config) first")
        return self._trained

    @property
    def model(self) -> _Model:
        """The model that is evaluated and kept."""
        return self.trained

    @property
    def config(self) -> Any:
        """Its shape."""
        return self.trained.config

    def realize(self, config: Any) -> None:
        """Allocate the model on the device and initialise it from the seed."""
        self._allocate(config)

    def _allocate(self, config: Any, **initialisation: Any) -> None:
        # Weights that are shared out never lie on a device whole: each block goes there when `build` cuts it.
        device = "cpu" if self._hardware.shards_weights else str(self._hardware.device)
        model: Any = models.build(config, self._settings.seed, self._init_scale, device, **initialisation)
        model.set_compute_dtype(self._hardware.dtype)
        self._trained = model

    def build(self) -> None:
        """Make optimizer and step."""
        from linnet.train.step import Step

        if self._hardware.shards_weights:
            from linnet.train.sharded_weights import shard_weights

            shard_weights(self.trained, self._hardware.device, self._hardware.ranks)
        self._step = Step(self.trained, self._settings, self._hardware, self._step_loss())

    def _step_loss(self) -> Callable[..., Any] | None:
        """What takes the place of the model's loss in a step; None: nothing."""
        from linnet.train.step import OwnLoss

        return None if self._loss is None else OwnLoss(self.trained, self._loss, self.batch_of)

    @staticmethod
    @abstractmethod
    def batch_of(*inputs: Any) -> Batch:
        """A batch of the inputs of some rows, for a loss of one's own."""

    @abstractmethod
    def train_on(self, batch: Batch, lr: float, index: int, observer: StepObserver | None = None) -> StepResult:
        """The loop's step; an observer looks at it and changes nothing."""

    def _train(self, batch: Batch, lr: float, is_first: bool, observer: StepObserver | None = None) -> StepResult:
        if is_first:
            self._built.optimizers.load({})
            self.step_index = 0
        result = self._built(batch, lr, self._settings.momentum(self.step_index), observer)
        self.step_index += 1
        return result

    def sum_order(self, rows: int) -> SumOrder:
        """In which order the gradients of a batch of so many rows are added up."""
        return self._built.order(rows)

    def chosen(self, rows: int) -> dict[str, Any]:
        """What a run says in `chosen` that hardware and settings alone do not tell, of a batch of so many rows."""
        return {"overlap": self._built.overlap(rows)}

    def parameters(self) -> dict[str, Tensor]:
        """The weights of a checkpoint by the names of `linnet.architectures`."""
        return self.model.params()

    def kept_parameters(self) -> dict[str, Tensor]:
        """The weights as rank 0 writes them, whole; asked for by all ranks together."""
        if not self._hardware.shards_weights:
            return self.parameters()
        from linnet.train.sharded_weights import gathered

        return gathered(self.parameters(), self._hardware.ranks)

    def moments(self) -> dict[str, Tensor]:
        """The optimizer state; of what is shared out among ranks, this rank's share."""
        return self._built.optimizers.state()

    def moment_layouts(self) -> dict[str, MomentLayout]:
        """Where the moments lie that are shared out; asked for by all ranks together."""
        return self._built.optimizers.layout()

    @property
    def weights_format(self) -> WeightsFormat:
        """How checkpoints hold the weights."""
        from linnet.train.checkpoint import ModelFormat

        return ModelFormat(self.config)

    @property
    def origin(self) -> Mapping[str, Any]:
        """Where the model comes from, for its checkpoints."""
        return {}

    @property
    def remark(self) -> str | None:
        """What is said of the model before its first step."""
        return None

    def restore(self, weights: Path, state: State) -> None:
        """Put a checkpoint back into the model and its optimizer, to the bit.

        The state has what the file does not hold as it was: all of it below f32, a lens and its table.
        """
        put_back(self.model, state.parameters, weights)
        self._built.optimizers.load(state.moments)
        self.step_index = int(state.facts.get("step", 0))

    @property
    def _built(self) -> Step:
        if self._step is None:
            raise LinnetError("the recipe has no step yet; call build() after realize(config)")
        return self._step


def put(model: Any, tensors: Mapping[str, Tensor]) -> None:
    """Copy tensors into the parameters of a model; a llama's rotary divisors are none, but come in the same files."""
    from linnet.train.sharded_weights import assign

    parameters = dict(model.named_parameters())
    for name, tensor in tensors.items():
        if name == _DIVISORS:
            model.use_divisors(tensor)
        else:
            assign(parameters[name], tensor)


def put_back(model: Any, tensors: Mapping[str, Tensor], weights: Path | None = None) -> None:
    """The same with just all parameters; those that `tensors` has not got are read from the file, one by one.

    A rank that keeps some rows of a parameter reads those.
    """
    import torch

    from linnet.train.sharded_weights import assign_rows, kept_rows
    from linnet.train.state import check_parameters

    parameters = dict(model.named_parameters())
    with ExitStack() as opened:
        stored: Mapping[str, Any] = {}
        if weights is not None and not parameters.keys() <= tensors.keys():
            stored = gguf.stored_params(opened.enter_context(gguf.GGUFFile.open(weights)))
        check_parameters(parameters, {name: kept for name, kept in {**stored, **tensors}.items() if name != _DIVISORS})
        for name in stored.keys() - tensors.keys():
            if name == _DIVISORS:
                model.use_divisors(torch.from_numpy(stored[name].read()))
            else:
                rows = stored[name].read(kept_rows(parameters[name]))
                assign_rows(parameters[name], torch.from_numpy(rows))
    put(model, tensors)
