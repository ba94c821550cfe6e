"""Losses that weigh a wrong token by how far it is from the target."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ..base import RowLoss
from ..batch import Batch
from ..errors import BadParameter
from ..numerics import complement, stop_gradient, target_log_prob
from ..parameters import choice, flag, number
from ..registry import register


@register("emo")
class EMO(RowLoss):
    """Earth mover distance between prediction and target under the cosine cost of an embedding, mixed with CE.

        c_jt = 1 - cos(E_j, E_t),   C = sum_j p_j c_jt,   dC/dz_j = p_j (c_jt - C)
        C' = C + sg(p_t) with detach_target, else C
        plain: C     emo1: scale (CE + sg(CE / C') C')     emo2: scale (C' + sg(C' / CE) CE)

    Args:
        mode: plain, emo1 or emo2.
        detach_target: leave the target out of the sum over j (C' above), as the later official versions do.
        ratio_cap: upper limit of the detached ratio, > 0, or null for none.
        scale: factor of the whole loss, > 0.
        cost_embedding: where the trainer takes the embedding from: fixed (copy of the LM head before training),
            adaptive (the current LM head at each step), or the path of another model with the same vocabulary.

    Hazards:
        - emo1 without a cap has the value of cross-entropy; only gradients differ. Never compare training curves.
        - emo2 with detach_target never stops pushing: on fitted tokens the ratio is about 1/CE and the gradient stays
          at norm 1. Use detach_target = false or a cap.
        - Without detach_target the ratio of emo1 explodes in bfloat16; here everything is float32 and C >= 0.
        - Bounded cost: for fine-tuning only, training from scratch is slow. Adaptive costs change the objective.

    Official code:
        - emo_patch.py emo1: emo1, detached, no cap, 0.5; emo2: emo2, detached, no cap, 1.
        - continual_finetuning: emo1, detached, cap 3, 0.5. language_modeling/gpt2.py: emo1, not detached, no cap, 0.5.
        - PyPI EMOLoss 0.0.3: not detached; mode 1 cap 3, 0.5; mode 2 scale 1. adaptive_emo in gpt2.py crashes.
        - A zero embedding row makes the published code return NaN everywhere; here such a row costs 1.
        - It builds an n x V one-hot; here the target's row is gathered.
    """

    paper = "Ren et al. 2024, EMO: Earth Mover Distance Optimization, https://arxiv.org/abs/2310.04691"
    needs = ("embedding",)
    cost = "that of cross-entropy and one n x V by V x H product forward and one backward"

    def __init__(
        self,
        mode: str = "emo1",
        detach_target: bool = True,
        ratio_cap: float | None = 3.0,
        scale: float = 0.5,
        cost_embedding: str = "fixed",
    ) -> None:
        super().__init__()
        self.mode = choice("mode", mode, ("plain", "emo1", "emo2"))
        self.detach_target = flag("detach_target", detach_target)
        self.ratio_cap = None if ratio_cap is None else number("ratio_cap", ratio_cap, above=0)
        self.scale = number("scale", scale, above=0)
        if not isinstance(cost_embedding, str) or not cost_embedding:
            raise BadParameter(f"cost_embedding must be fixed, adaptive or a model's path, got {cost_embedding!r}.")
        self.cost_embedding = cost_embedding
        self.bounds = (0.0, 2 * (1 + self.detach_target) if self.mode == "plain" else math.inf)

    def prepare(self, name: str, value: Tensor) -> Tensor:
        """Rows of unit length; a zero row stays zero and thereby costs 1 from everywhere."""
        value = value if value.dtype == torch.float64 else value.float()
        return F.normalize(value, dim=1, eps=torch.finfo(value.dtype).tiny)

    def value(self, rows: Tensor, batch: Batch) -> Tensor:
        unit = batch.context["embedding"].to(rows.dtype)
        target = unit[batch.labels]
        similarity = ((rows.softmax(1) @ unit) * target).sum(1)
        return self.of_similarity(target_log_prob(rows, batch.labels), similarity, target.square().sum(1))

    def of_similarity(self, log_p: Tensor, similarity: Tensor, square: Tensor) -> Tensor:
        """(n,) values from log p_t, sum_j p_j cos(E_j, E_t) and |E_t|^2 of the unit rows (1; a zero row 0)."""
        distance = 1 - similarity
        distance = distance + (distance.clamp_min(0) - distance).detach()  # rounding below 0, the gradient passes
        if self.detach_target:
            distance = distance + stop_gradient(log_p.exp() * square)
        if self.mode == "plain":
            return self.scale * distance
        if self.mode == "emo1":
            return self.scale * (-log_p + self._ratio(-log_p, distance) * distance)
        return self.scale * (distance - self._ratio(distance, -log_p) * log_p)

    def _ratio(self, numerator: Tensor, denominator: Tensor) -> Tensor:
        ratio = stop_gradient(numerator / (denominator + 1e-10))
        return ratio if self.ratio_cap is None else ratio.clamp_max(self.ratio_cap)

    def warnings(self) -> list[str]:
        if self.mode == "emo2" and self.detach_target and self.ratio_cap is None:
            return [
                "emo2 with detach_target and no ratio_cap never stops pushing: on tokens that are fitted already its "
                "gradient stays at norm 1; set detach_target to false or give a ratio_cap."
            ]
        return []


@register("number_token_loss")
class NumberTokenLoss(RowLoss):
    """Number token loss: how far the predicted number is from the true one, on tokens that are numbers.

        P = softmax of z over the number tokens D, v their values
        wasserstein: f = sum_k P_k |v_k - v_y|        gradient P_k (|v_k - v_y| - f) on D
        mse:         f = (sum_k P_k v_k - v_y)^2      gradient 2 (mean - v_y) P_k (v_k - mean) on D
        mean over the tokens whose label is a number, 0 if there is none

    Args:
        variant: wasserstein or mse.
        reweigh: f mass + 1.01 d_max (1 - mass) with mass = probability of all number tokens and d_max the largest
            distance (its square for mse), so that leaving the numbers is never cheaper.

    Hazards:
        - An addition to cross-entropy (weight 0.3 in the paper), useless alone: most tokens are no numbers.
        - mse has false minima: half the mass on 0 and half on 8 is perfect for the target 4.
        - The mean is over number tokens, so per-token values are scaled by n / their number (scope local+stats).

    Official code:
        - NaN on batches without numbers; ignored labels are mapped to id 0, wrong if id 0 is a number; the CDF class
          assumes unit spacing. reweigh is the PyPI package's default and not in the paper.
    """

    paper = "Zausinger et al. 2025, Regress, Don't Guess: A Regression-like Loss on Number Tokens, https://arxiv.org/abs/2411.02083"
    scope = "local+stats"
    needs = ("token_values",)
    cost = "that of cross-entropy on the rows and columns of number tokens"
    bounds = (0.0, math.inf)
    auxiliary = "it sees only the tokens that are numbers"

    def __init__(self, variant: str = "wasserstein", reweigh: bool = False) -> None:
        super().__init__()
        self.variant = choice("variant", variant, ("wasserstein", "mse"))
        self.reweigh = flag("reweigh", reweigh)

    def value(self, rows: Tensor, batch: Batch) -> Tensor:
        values = batch.context["token_values"].to(rows.dtype)
        ids = values.isfinite().nonzero().squeeze(1)
        here = values[batch.labels].isfinite().nonzero().squeeze(1)
        if here.numel() == 0:
            return rows.new_zeros(batch.n) + rows[:, :0].sum(1)  # zeros, attached to the graph
        v, truth = values[ids], values[batch.labels[here]]
        chosen = rows.index_select(0, here)
        numbers = chosen.index_select(1, ids)
        p = numbers.softmax(1)
        if self.variant == "wasserstein":
            value = (p * (v - truth[:, None]).abs()).sum(1)
        else:
            value = ((p * (v - truth[:, None])).sum(1)).square()
        if self.reweigh:
            widest = v.max() - v.min()
            widest = widest if self.variant == "wasserstein" else widest.square()
            log_mass = (numbers.logsumexp(1) - chosen.logsumexp(1)).clamp_max(0)
            value = value * log_mass.exp() + 1.01 * widest * complement(log_mass)
        return rows.new_zeros(batch.n).index_add(0, here, value * (batch.n / here.numel()))
