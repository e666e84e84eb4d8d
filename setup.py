"""Metadata and dependencies. `launch` and `configs` are run from the checkout."""

from pathlib import Path

from setuptools import find_packages, setup

README = Path(__file__).parent / "README.md"
REQUIRES = [
    "jax>=0.10.2",
    "flax>=0.12.8",
    "optax>=0.2.8",
    "orbax-checkpoint>=0.12",
    "absl-py>=2.1",
    "jaxtyping>=0.3.2",
    "jinja2>=3.1",
    "matplotlib>=3.9",
    "ml_collections>=1.1",
    "numpy>=2.0",
    "packaging>=23.2",
    "pydantic>=2.9",
    "rich>=13.7",
    "safetensors>=0.5",
    "scipy>=1.14",
    "tensorboardX>=2.6.2",
    "tokenizers>=0.21",
    "tqdm>=4.66",
]
HF = [
    "gguf>=0.17",
    "transformers>=4.51",
]
DATA = [
    "grain>=0.2.18",
    "importlib_resources>=6.4",  # tensorflow-datasets imports it, and does not say so
    "tensorflow-datasets>=4.9.10",
]
AGENTS = ["openai>=2.0"]
PLAY = ["prompt_toolkit>=3.0.43"]
SERVE = [
    "httptools>=0.6",  # with it uvicorn takes less time
    "starlette>=0.40",
    "uvicorn>=0.30",
]
TEST = [
    *AGENTS,
    *DATA,
    *HF,  # and transformers reads our tokenizer and weights
    *PLAY,
    *SERVE,
    "chex>=0.1.90",
    "hypothesis>=6.120",
    "jsonschema>=4.21",  # reads the schema of reports
    "playwright>=1.50",  # drives the chromium of the system
    "pyright[nodejs]>=1.1.410",  # brings its own node, as a wheel
    "pytest>=8.4",
    "pytest-xdist>=3.6",
    "rlax>=0.1.6",  # an independent oracle of losses and advantages
    "ruff>=0.14",
    "scikit-learn>=1.5",  # looks for shortcuts
]
BACKENDS = ("cuda12", "cuda13", "tpu")

setup(
    name="openagent_jax",
    version="0.1.0",
    description="Measure and train tool-use agents whose world changes, in JAX",
    long_description=README.read_text("utf-8") if README.exists() else "",
    long_description_content_type="text/markdown",
    author="The openagent_jax authors",
    license="Apache-2.0",
    license_files=["LICENSE"],
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
    packages=find_packages(include=["openagent_jax", "openagent_jax.*"]),
    package_data={
        "openagent_jax": ["backbones/**/*"],
        "openagent_jax.domains": ["files/*.json", "files/*.md"],
        "openagent_jax.report": ["*.json"],
        "openagent_jax.report.viewer": ["*.css", "*.html", "*.js"],
        "openagent_jax.report.web": ["*.css", "*.html", "*.js"],
        "openagent_jax.suites": ["files/*.json"],
        "openagent_jax.text": ["*.txt", "error_texts.json", "templates/*.jinja"],
    },
    python_requires=">=3.11",
    install_requires=REQUIRES,
    extras_require={
        "agents": AGENTS,
        "hf": HF,
        "data": DATA,
        "play": PLAY,
        "serve": SERVE,
        "test": TEST,
        "torch": ["torch>=2.4"],  # what tests and bench compare with; large
        **{name: [f"jax[{name}]"] for name in BACKENDS},
    },
    zip_safe=False,
)
