"""Matrix products in which a row's result does not depend on how many other rows there are.

A product of very few rows takes another way through the BLAS library, which adds up in another order. From 4 rows on
(measured on AVX2, for widths from 64 to 2048), every row is added up in one order, whatever its neighbours. So fewer
rows are filled up with zeros: an answer has the same bits in any batch, slot, worker or rank.
"""

import torch
from torch import Tensor

FEWEST_ROWS = 8


def product(x_RD: Tensor, weight_DE: Tensor, *, out: Tensor | None = None) -> Tensor:
    """x @ weight, [R, E]."""
    rows = len(x_RD)
    if rows >= FEWEST_ROWS:
        return torch.mm(x_RD, weight_DE, out=out)
    filled_RD = x_RD.new_zeros(FEWEST_ROWS, x_RD.shape[1])
    filled_RD[:rows] = x_RD
    result_RE = torch.mm(filled_RD, weight_DE)[:rows]
    return result_RE if out is None else out.copy_(result_RE)
