"""Reject a config that cannot work, before anything is compiled or written."""

from collections.abc import Collection

from launch.common import errors, scenarios
from launch.common.config import Config, flat
from launch.common.errors import UsageError
from openagent_jax import advantages, losses, monitors, perturb, rewards
from openagent_jax.algorithms import grpo
from openagent_jax.curriculum import mix
from openagent_jax.data import lookups
from openagent_jax.domains import development, library
from openagent_jax.environments import registry
from openagent_jax.environments.tools.worlds import mixture
from openagent_jax.environments.world import SPLITS, names_of

ALGORITHMS = ("sft", "grpo", "ppo")
CRAFTING = "crafting"  # the domain of crafting worlds
# Keys of `model` that are for a model with random weights.
SHAPE = ("width", "num_layers", "num_heads", "num_kv_heads", "head_size", "mlp_width")
SHAPE += ("rope_theta", "tied", "look_back_heads", "match_heads", "copy_heads")
SHAPE += ("word_forms",)
# Keys whose values lie between 0 and 1.
SHARES = (
    "paft.alpha",
    "paft.strength",
    "optim.end_factor",
    "ppo.discount",
    "ppo.gae_lambda",
    "eval.strength",
    "train.other_share",
    "train.lookup_share",
)
# Whole numbers that may be 0; all others are at least 1.
MAY_BE_ZERO = (
    "seed",
    "optim.warmup_steps",
    "paft.ramp_steps",
    "train.max_tokens",
    "train.num_tasks",
    "eval.every",
    "eval.seed",
    "eval.keep",
    "model.look_back_heads",
    "model.match_heads",
    "model.copy_heads",
    "algorithm.num_rows",
    "model.lora.rank",
    "checkpoint.keep_last",
    "rollout.num_rows",
    "train.num_ahead",
    "train.lookup_steps",
    "sandbox.depth",
    "sandbox.num_derived",
)


def check(c: Config) -> None:
    """Check everything that does not depend on the machine or the model.

    Raises:
      UsageError: something cannot work; the message names the key and the remedy.
    """
    _check_numbers(c)
    _check_names(c)
    _check_combinations(c)
    _check_domains(c)
    _ = c.profile.traced  # raises if it is none
    with errors.blame("optim"):
        c.optim.optimizer(c.num_updates)
    errors.check_names("surrogate.loss", [c.surrogate.loss], losses.LOSSES)
    errors.check_names(
        "surrogate.normaliser", [c.surrogate.normaliser], ["", *losses.DIVISORS]
    )
    errors.check_names("grpo.std", [c.grpo.std], advantages.STD_OVER)
    if c.data.path:
        _check_stored_demonstrations(c)
    if c.algorithm.num_rows:
        _check_packing(c)
    if c.algorithm.is_reinforcement:
        with errors.blame("reward"):
            paid = dict(registry.spec(c.sandbox.domain).rewards)
            rewards.check(c.reward.weights, paid)
    if c.algorithm.name == "grpo":
        with errors.blame("grpo"):
            grpo.check(c.grpo.groups, c.train.batch_size)
    if c.paft.alpha:
        with errors.blame("paft"):
            mix.check(c.paft.alpha, c.paft.paired, c.train.batch_size)
    if c.grpo.paired and not (c.paft.alpha and c.paft.paired):
        raise UsageError("grpo.paired=True needs paft.paired=True and paft.alpha=0.5")


def check_training(c: Config) -> None:
    """Check that a policy is not trained in domains of the library that are held out.

    A policy may be trained in held-out domains alone, such as `medical`, but then no
    domain of the training group may be among its own.

    Raises:
      UsageError: domains of both groups are mixed.
    """
    trained = (c.sandbox.domain, *c.train.other_domains)
    every = [name for x in trained for name in names_of(x)]
    names = [name.removesuffix(development.SUFFIX) for name in every]
    of_train, held_out = (
        next((name for name in names if name in group), None)
        for group in (library.TRAIN, library.HELD_OUT)
    )
    if of_train and held_out:
        raise UsageError(
            f'sandbox.domain and train.other_domains mix "{of_train}", a training '
            f'domain, with "{held_out}", which is held out: nothing would be left to '
            "evaluate transfer in; train on one of the two"
        )


def check_given(c: Config, given: Collection[str]) -> None:
    """Refuse values that flags have set, and that a run of this config does not use.

    Args:
      c: the config.
      given: the keys that flags have set.

    Raises:
      UsageError: there is one.
    """
    for keys, is_used, remedy in (
        (
            [f"model.{name}" for name in SHAPE],
            "random" in (c.init_from, c.surrogate.reference),
            "init_from=random",
        ),
        (["grpo."], c.algorithm.name == "grpo", "algorithm.name=grpo"),
        (["ppo."], c.algorithm.name == "ppo", "algorithm.name=ppo"),
        (
            ["surrogate.", "reward.", "monitor."],
            c.algorithm.is_reinforcement,
            "algorithm.name=grpo or ppo",
        ),
        (["optim.muon_learning_rate"], c.optim.name == "muon", "optim.name=muon"),
        (["train.other_share"], c.train.other_domains, "train.other_domains"),
        (["train.lookup_steps"], c.train.lookup_share, "train.lookup_share above 0"),
    ):
        unused = [key for key in given if key.startswith(tuple(keys))]
        if unused and not is_used:
            raise UsageError(
                f"--config.{unused[0]} does nothing in this run: it needs {remedy}"
            )


def check_unpaired(c: Config) -> None:
    """Check that demonstrations can be made one by one.

    Raises:
      UsageError: the config asks for pairs.
    """
    if c.paft.alpha and c.paft.paired:
        raise UsageError(
            "paft.paired=True pairs the tasks of a batch, and there are no batches "
            "here; set it to False"
        )


def _check_numbers(c: Config) -> None:
    for key, value in flat(c).items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        low = 0 if isinstance(value, float) or key in MAY_BE_ZERO else 1
        low = -1 if key.startswith("mesh.") or key == "sandbox.num_goals" else low
        high = 1 if key in SHARES else 2**31 - 1
        low = -high if key.startswith("reward.") else low
        if not low <= value <= high:
            raise UsageError(f"{key}={value} is not a number from {low} to {high}")


def _check_names(c: Config) -> None:
    errors.check_names("algorithm.name", [c.algorithm.name], ALGORITHMS)
    errors.check_names("eval.split", [c.eval.split], SPLITS)
    errors.check_names("monitor.stop", c.monitor.stop, monitors.MONITORS)
    scenarios.choose(registry.spec(c.eval_domain), c.eval.scenarios, "suite")
    spec = registry.spec(c.sandbox.domain)
    entries = perturb.catalogue(spec)
    if c.paft.alpha and not entries:
        raise UsageError(
            "paft.alpha needs perturbations, and sandbox.domain="
            f'"{c.sandbox.domain}" has none: set paft.alpha=0'
        )
    if not entries:
        return
    scenarios.check_names("paft.perturbations", c.paft.perturbations, spec)
    scenarios.check_names("paft.leave_out", c.paft.leave_out, spec)
    with errors.blame("paft.perturbations"):
        mix.chosen(spec, c.paft.perturbations)
    with errors.blame("paft.leave_out"):
        mix.chosen(spec, c.paft.perturbations, c.paft.leave_out)


def _check_combinations(c: Config) -> None:
    if c.paft.alpha and not c.paft.perturbations:
        raise UsageError("paft.perturbations is empty; name some, or set paft.alpha=0")
    if c.eval.keep_tokens and not c.eval.keep:
        raise UsageError("eval.keep_tokens=True needs eval.keep above 0")
    if 0 < c.train.num_tasks < c.num_sampled_tasks:
        raise UsageError(
            f"train.num_tasks={c.train.num_tasks} is less than the "
            f"{c.num_sampled_tasks} tasks of a step (train.batch_size); raise it, or "
            "set it to 0 for new tasks in every step"
        )
    if c.train.num_tasks and c.data.path:
        raise UsageError(
            f"train.num_tasks={c.train.num_tasks} does not choose among the stored "
            "demonstrations of data.path: set it to 0"
        )
    if c.train.shuffle_vectors and CRAFTING in (
        c.sandbox.domain,
        *c.train.other_domains,
    ):
        raise UsageError(
            f'train.shuffle_vectors cannot be used with the domain "{CRAFTING}", '
            "where the same words occur in all worlds; set it to False"
        )
    if c.train.shuffle_vectors and c.algorithm.is_reinforcement:
        raise UsageError(
            f'train.shuffle_vectors cannot be used with algorithm.name="'
            f'{c.algorithm.name}", whose actions are sampled with the vectors as they '
            "are; set it to False"
        )
    if c.algorithm.is_reinforcement or c.data.path:
        other = "data.path" if c.data.path else f'algorithm.name="{c.algorithm.name}"'
        for key, default in (
            ("other_domains", ()),
            ("lookup_share", 0.0),
            ("num_ahead", 0),
        ):
            if getattr(c.train, key) != default:
                raise UsageError(
                    f"train.{key} cannot be used with {other}: set it to {default}"
                )
    if c.train.lookup_share and c.algorithm.num_tokens < lookups.LEAST_TOKENS:
        raise UsageError(
            f"algorithm.num_tokens={c.algorithm.num_tokens} has no room for exercises "
            f"(train.lookup_share); set it to {lookups.LEAST_TOKENS} or more"
        )
    if c.sandbox.min_visible > c.sandbox.num_visible:
        raise UsageError(
            f"sandbox.min_visible={c.sandbox.min_visible} is more than "
            f"sandbox.num_visible={c.sandbox.num_visible}"
        )
    if c.algorithm.is_reinforcement and not c.algorithm.temperature:
        raise UsageError(
            "algorithm.temperature=0.0 always plays the most likely action, so nothing "
            "is learned; set it to more than 0, such as 1.0"
        )
    least = c.sandbox.prompt_tokens + c.sandbox.action_tokens + c.sandbox.result_tokens
    if c.sandbox.context_tokens < least:
        raise UsageError(
            f"sandbox.context_tokens={c.sandbox.context_tokens} has no room for a "
            f"prompt, an action and a result: {least} tokens"
        )
    if c.model.lora.adapters and c.optim.train_embedding:
        raise UsageError(
            "optim.train_embedding=True needs model.lora.rank=0: with adapters, "
            "nothing else is trained"
        )


def _check_domains(c: Config) -> None:
    if c.sandbox.transfer in registry.SPECS:
        raise UsageError(
            f'sandbox.transfer="{c.sandbox.transfer}" is not a domain of tools; name '
            'one, such as "medical"'
        )
    if not c.sandbox.transfer or not c.sandbox.domain:
        key = "transfer" if c.sandbox.domain else "domain"
        raise UsageError(f'sandbox.{key}="" names no domain; name one, such as "poi"')
    tested = registry.both(c.sandbox) if c.sandbox.test_domains else ""
    for key, names in (
        ("sandbox.domain", c.sandbox.domain),
        ("sandbox.test_domains", tested),
        ("sandbox.transfer", c.sandbox.transfer),
        ("eval.domain", c.eval_domain),
        *(("train.other_domains", name) for name in c.train.other_domains),
    ):
        if not names:
            continue
        with errors.blame(key):
            registry.check_name(names)
            registry.spec(names).check(names, c.sandbox, c.max_sizes)
    with errors.blame("sandbox.domain_weights"):
        mixture.shares(c.sandbox)


def _check_stored_demonstrations(c: Config) -> None:
    if c.algorithm.is_reinforcement:
        raise UsageError(
            "data.path is for supervised fine-tuning; with algorithm.name="
            f'"{c.algorithm.name}" the policy plays its own episodes: set data.path=""'
        )
    if c.paft.alpha:
        raise UsageError(
            f"paft.alpha={c.paft.alpha} does not perturb the stored demonstrations of "
            "data.path: set paft.alpha=0, and perturb them when the dataset is built"
        )


def _check_packing(c: Config) -> None:
    rows, columns = c.algorithm.num_rows, c.algorithm.num_tokens
    if c.algorithm.is_reinforcement:
        raise UsageError(
            f"algorithm.num_rows={rows} packs demonstrations, and the rows of "
            f'algorithm.name="{c.algorithm.name}" are episodes: set it to 0'
        )
    if rows > c.train.batch_size and not c.data.path:
        raise UsageError(
            f"algorithm.num_rows={rows} is more than train.batch_size="
            f"{c.train.batch_size}: some rows would always be empty"
        )
    least = c.sandbox.prompt_tokens + c.sandbox.action_tokens
    if columns < least:
        raise UsageError(
            f"algorithm.num_tokens={columns} has no room for one demonstration, which "
            f"is a prompt and an action at least: {least} tokens"
        )
