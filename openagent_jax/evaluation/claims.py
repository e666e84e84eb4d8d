"""What a row of a report can claim, given what the policy was trained on.

Four claims are kept apart, so that no mean mixes them:

    unseen_forms     the kind of perturbation was trained on, its surface forms were not
    unseen_kind      the kind was left out of training
    held_out_domain  the tasks are of a domain that was not trained on
    entities         the entities are of forms that no task to train on has

Some entries, such as `logic_inversion`, have no surface forms of their own. For these,
`unseen_forms` means that the tasks are unseen: their requests, entities and worlds.

Claims are about the runs that trained the policy, as far as these are known. A
composition counts as trained on if all of its parts were.
"""

from dataclasses import dataclass

from openagent_jax import perturb, report
from openagent_jax.domains import development


@dataclass(frozen=True)
class Trained:
    """What a policy was trained on, in forms and tasks of the training split."""

    domains: frozenset[str]
    kinds: frozenset[str]  # see `perturb.kinds`


@dataclass(frozen=True)
class Claims:
    """Derives the standing of rows; see `report.Standing`."""

    split: str  # of the tasks that are played
    domains: tuple[str, ...]  # of the tasks
    transfer: tuple[str, ...]  # the domains that `domain_transfer` takes tasks from
    trained: Trained | None = None  # None if it is not known

    def of(self, entry: perturb.Entry | None) -> report.Standing:
        """Return the standing of a row.

        A mean over domains some of which were trained on claims nothing, and neither
        does a row of tasks and forms to train on.

        Args:
          entry: the perturbation of the row; None for clean tasks.
        """
        unseen = entry.unseen if entry else ""
        names = self.transfer if unseen == "domain" else self.domains
        where = ",".join(names)
        if self.trained is None:
            return report.Standing("held_out", None, where)
        plain = [name.removesuffix(development.SUFFIX) for name in names]
        known = [name in self.trained.domains for name in plain]
        same_domain = all(known)
        same_kind = entry is None or perturb.kinds_of(entry) <= self.trained.kinds
        if not any(known):
            claim = "held_out_domain"
        elif not same_domain:
            claim = None
        elif unseen == "entities":
            claim = "entities"
        elif not same_kind:
            claim = "unseen_kind"
        else:
            claim = None if self.split == "train" else "unseen_forms"
        if entry is None:
            seen = same_domain and self.split == "train"
        else:
            seen = same_kind and (not unseen or unseen == "domain" and same_domain)
        return report.Standing("train" if seen else "held_out", claim, where)
