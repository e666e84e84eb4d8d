"""SFT with more data, and with more steps.

    python -m launch.ablate --study=configs/paper/data_and_steps.py

The paper (arXiv 2607.01084) finds that more data or more steps of static training do
not cure the fragility of SFT. Its training set has 6,050 samples, on which SFT takes
800 steps (as readers of the full text report).

`train.num_tasks` is the number of different tasks, which are repeated in epochs, and
`train.num_steps` the number of batches of 8 of them. 150 steps see 1,200 tasks, and
1,200 steps see 9,600: 19 epochs of 500 tasks. The base has the most of both.
Time: not measured; 45 runs of 150 to 1,200 steps, which are as many steps as 49 runs of
`configs/sft.py` have.
Result: not measured yet.
"""

from configs.paper import study

NUM_TASKS = (500, 2000, 8000)
NUM_STEPS = (150, 600, 1200)


def get_study(arg: str = "") -> study.Study:
    sft = study.Setting("", study.config("sft", arg), study.evaluation(arg))
    is_smoke = arg == study.SMOKE
    steps = (2, 3) if is_smoke else NUM_STEPS
    settings = study.vary([sft], "train.num_tasks", (8, 16) if is_smoke else NUM_TASKS)
    settings = study.vary(settings, "train.num_steps", steps)
    return study.Study(settings, base=settings[-1].name)
