"""Region losses from segmentation: Lovasz, Dice, Jaccard; tokens are the pixels and the vocabulary is the classes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..base import BatchLoss, Columns, Masses, MassLoss, TargetLoss
from ..batch import Batch
from ..errors import BadInput, BadParameter
from ..numerics import complement
from ..parameters import choice, flag, integer, number
from ..registry import register


@register("lovasz_softmax")
class LovaszSoftmax(BatchLoss):
    """Lovasz-softmax: the tight convex surrogate of 1 - IoU, averaged over classes.

        e_i = |1[y_i = c] - p_ic| sorted decreasingly, J_k the Jaccard loss of the first k
        L = mean over classes c of sum_k e_(k) (J_k - J_{k-1})
        dL/dp_ic = (J_k - J_{k-1}) / K, negative for tokens of class c

    Args:
        classes: present (classes that occur among the labels), all, or a list of token ids. An absent class costs its
            largest probability.
        per_sequence: average the loss over the sequences instead of pooling the tokens of the batch.

    Hazards:
        - One number for the whole micro-batch: accumulation, sharding and packing change its meaning.
        - With ties the subgradient is ambiguous; bfloat16 probabilities tie massively, so the sort is in float32.
        - A single token of its class without false positives costs 1 - p_t, as MAE: most LM batches are close to that.

    Official code:
        - `classes is 'present'` compares identity: a string from a config silently means all classes.
        - No class present returns the int 0; empty input a tensor of shape (0, C); a Python loop over V sorts.
        - The vision-losses repository turns ignored rows into class 0, which becomes present with certain error 1.
    """

    paper = "Berman et al. 2018, The Lovasz-Softmax loss, https://arxiv.org/abs/1705.08790"
    bounds = (0.0, 1.0)
    cost = "that of cross-entropy and one sort of n values for each of the K classes that occur"

    def __init__(self, classes: str | Sequence[int] = "present", per_sequence: bool = False) -> None:
        super().__init__()
        self.classes: str | tuple[int, ...]
        if isinstance(classes, str):
            self.classes = choice("classes", classes, ("present", "all"))
        else:
            self.classes = tuple(integer("classes", c, at_least=0) for c in classes)
            if not self.classes:
                raise BadParameter("classes is an empty list; name token ids, or use 'present' or 'all'.")
        self.per_sequence = flag("per_sequence", per_sequence)
        if self.per_sequence:
            self.scope = "sequence"

    def per_token(self, rows: Tensor, batch: Batch) -> Tensor:
        if not self.per_sequence:
            return self._of_rows(rows, batch.labels)
        members = [(batch.sequence == s).nonzero().squeeze(1) for s in range(batch.n_sequences)]
        return torch.stack([self._of_rows(rows[m], batch.labels[m]) for m in members]).mean()

    def _of_rows(self, rows: Tensor, labels: Tensor) -> Tensor:
        columns = Columns.of(rows, labels)
        if self.classes == "present":
            return lovasz_of_columns(columns).mean()
        vocabulary = rows.shape[1]
        chosen = torch.zeros(vocabulary, dtype=torch.bool, device=rows.device)
        if isinstance(self.classes, str):
            chosen[:] = True
        else:
            if max(self.classes) >= vocabulary:
                raise BadInput(f"classes names the token {max(self.classes)} but the logits have {vocabulary} classes.")
            chosen[list(self.classes)] = True
        absent = chosen.clone()
        absent[columns.classes] = False
        largest = rows.log_softmax(1).amax(0).exp()
        total = lovasz_of_columns(columns)[chosen[columns.classes]].sum() + largest[absent].sum()
        return total / int(chosen.sum())

    def value(self, columns: Columns, batch: Batch) -> Tensor:
        return lovasz_of_columns(columns).mean()


def lovasz_of_columns(columns: Columns) -> Tensor:
    """(K,) Lovasz loss of each present class: one sort of all columns together."""
    n, k = columns.log_p.shape
    p = columns.log_p.exp()
    cells = columns.label[:, None]
    error = p.scatter(1, cells, complement(columns.log_p_t)[:, None]).t()  # (K, n)
    foreground = torch.zeros(n, k, dtype=p.dtype, device=p.device).scatter_(1, cells, 1.0).t()
    ordered, order = error.sort(dim=1, descending=True)
    foreground = foreground.gather(1, order)
    seen = foreground.cumsum(1)
    wrong = torch.arange(1, n + 1, device=p.device, dtype=p.dtype) - seen
    size = columns.count[:, None]
    # Jaccard increments in closed form; the difference of two neighbouring J would lose its digits.
    union = size + wrong
    increment = torch.where(foreground > 0, 1 / union, (size - seen) / (union * (union - 1).clamp_min(1)))
    return (ordered * increment).sum(1)


@register("generalized_dice")
class GeneralizedDice(MassLoss):
    """Generalized Dice: overlap of prediction and labels, classes weighted by the inverse square of their count.

        w_c = 1 / count_c^2,  I = sum_c w_c sum_i p_ic Y_ic,  U = sum_c w_c (sum_i p_ic + count_c)
        L = 1 - (2 I + smooth_nr) / (U + smooth_dr)

    Args:
        absent: weight of classes without a label: zero, or max (the largest present weight, as NiftyNet and MONAI).
        smooth_nr: added to the numerator, >= 0.
        smooth_dr: added to the denominator, > 0.

    Hazards:
        - One number for the whole micro-batch: accumulation, sharding and packing change its meaning.
        - Rare classes dominate: a class that occurs once weighs 100 times one that occurs 10 times.

    Official code:
        - As published (vision-losses repository) absent classes weigh 1e20, so that for a vocabulary larger than the
          batch value and gradient are 0 (1e-22): its GDice runs are 0.6 times cross-entropy. Not reproduced.
        - It returns -dice without the 1, per sequence, and counts ignored tokens as class 0.
    """

    paper = "Sudre et al. 2017, Generalised Dice overlap, https://arxiv.org/abs/1707.03237"

    def __init__(self, absent: str = "zero", smooth_nr: float = 1e-5, smooth_dr: float = 1e-5) -> None:
        super().__init__()
        self.absent = choice("absent", absent, ("zero", "max"))
        self.smooth_nr = number("smooth_nr", smooth_nr, at_least=0)
        self.smooth_dr = number("smooth_dr", smooth_dr, above=0)
        self.bounds = (-math.inf, 1.0)

    def of_masses(self, masses: Masses, batch: Batch) -> Tensor:
        weight = masses.count.reciprocal().square()
        overlap = (weight * masses.own).sum()
        union = (weight * (masses.own + masses.others + masses.count)).sum()
        if self.absent == "max":
            union = union + weight.max() * masses.absent
        return 1 - (2 * overlap + self.smooth_nr) / (union + self.smooth_dr)

    def warnings(self) -> list[str]:
        return [
            "published numbers for generalized dice on language models are not comparable: the published code weighs "
            "absent classes by 1e20, which makes it 0, so that its mixture is 0.6 times cross-entropy; this one works."
        ]


@register("jaccard_metric")
class JaccardMetric(MassLoss):
    """Jaccard, Dice and Tversky metric losses on soft counts, averaged over the present classes.

        tp_c = sum_{y_i = c} p_ic,  fp_c = sum_{y_i != c} p_ic,  fn_c = count_c - tp_c
        T_c = (tp_c + smooth) / (tp_c + alpha fp_c + beta fn_c + smooth)
        L = mean_c (1 - T_c)^gamma,  or mean_c -log T_c with log

    Args:
        alpha: weight of false positives, >= 0.
        beta: weight of false negatives, >= 0; alpha = beta = 1 is Jaccard, 0.5 is Dice.
        smooth: added to numerator and denominator, >= 0 (the authors' configs use 1.0).
        gamma: exponent of the focal form, > 0.
        log: -log T_c instead.

    Hazards:
        - One number for the whole micro-batch: accumulation, sharding and packing change its meaning.
        - When every class has about one token, as in most LM batches, it is close to mean(1 - p_t).
        - The authors train 0.25 cross-entropy + 0.75 of this.
    """

    paper = (
        "Wang et al. 2023, Jaccard Metric Losses, https://arxiv.org/abs/2302.05666; "
        "Dice Semimetric Losses, https://arxiv.org/abs/2303.16296"
    )

    def __init__(
        self, alpha: float = 1.0, beta: float = 1.0, smooth: float = 1e-3, gamma: float = 1.0, log: bool = False
    ) -> None:
        super().__init__()
        self.alpha = number("alpha", alpha, at_least=0)
        self.beta = number("beta", beta, at_least=0)
        self.smooth = number("smooth", smooth, at_least=0)
        self.gamma = number("gamma", gamma, above=0)
        self.log = flag("log", log)
        self.bounds = (0.0, math.inf if self.log else 1.0)

    def of_masses(self, masses: Masses, batch: Batch) -> Tensor:
        tp = masses.own
        fn = torch.zeros_like(tp).index_add(0, masses.label, complement(masses.log_p_t))
        penalty = self.alpha * masses.others + self.beta * fn
        whole = tp + penalty + self.smooth
        if self.log:
            return (whole.log() - (tp + self.smooth).log()).mean()
        return ((penalty / whole) ** self.gamma).mean()


@register("self_adjusting_dice")
class SelfAdjustingDice(TargetLoss):
    """Self-adjusting Dice: per-token soft Dice whose overlap is damped by (1 - p_t)^alpha.

        u = (1 - p_t)^alpha p_t,   f = 1 - (2 u + gamma) / (u + 1 + gamma)
        gate = p_t (2 + gamma) (1 - p_t)^(alpha - 1) (1 - (1 + alpha) p_t) / (u + 1 + gamma)^2

    Args:
        alpha: strength of the damping, >= 0; 0 is the monotone f = 1 - (2 p_t + gamma) / (p_t + 1 + gamma).
        gamma: smoothing, >= 0.

    Hazards:
        - The gate changes sign at p_t = 1 / (1 + alpha): with alpha = 1 the loss is smallest at p_t = 0.5 and pushes
          confident tokens down. It cannot be trained alone; add it to cross-entropy with a small weight.

    Official code:
        - ShannonAI's DiceLoss (default alpha = 0) has a per-token numerator over a batch-wide denominator and sums over
          classes. This is the version of the vision-losses paper, with its handling of ignored tokens mended.
    """

    paper = "Li et al. 2020, Dice Loss for Data-imbalanced NLP Tasks, https://arxiv.org/abs/1911.02855"

    def __init__(self, alpha: float = 1.0, gamma: float = 1.0) -> None:
        super().__init__()
        self.alpha = number("alpha", alpha, at_least=0)
        self.gamma = number("gamma", gamma, at_least=0)
        self.bounds = (0.0, 1 / (1 + self.gamma))
        if self.alpha > 0:
            self.auxiliary = (
                f"with alpha = {self.alpha:g} it is smallest at p_t = {1 / (1 + self.alpha):.2g} and pushes tokens "
                "that are more certain down"
            )

    def value(self, log_p: Tensor, batch: Batch) -> Tensor:
        u = complement(log_p) ** self.alpha * log_p.exp()
        return (1 - u) / (u + 1 + self.gamma)

    def gate(self, log_p: Tensor, batch: Batch) -> Tensor:
        p, q = log_p.exp(), complement(log_p)
        # (1-p)^(alpha-1) diverges at p = 1 for alpha < 1, but times (p - onehot) its limit is 0.
        power = torch.where(q > 0, torch.where(q > 0, q, 1.0) ** (self.alpha - 1), 1.0 if self.alpha == 1 else 0.0)
        slope = q**self.alpha - self.alpha * p * power
        return p * (2 + self.gamma) * slope / (q**self.alpha * p + 1 + self.gamma).square()
