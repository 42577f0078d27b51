"""log sum exp over the rolls of many bases, and its derivative, by a compiled pass on several threads."""

import numpy as np
import torch
from torch import Tensor, nn

from holobind._threads import threaded
from holobind.codebooks._transform_plan import radices, roll_of_position, twiddle_factors

# The number of tasks does not depend on that of threads, so that the result does not, either. Each adds about 0.1 ms.
MAX_TASKS, MIN_BASES_PER_TASK = 16, 16

MAX_SQUARE_LENGTH = 1e30  # of a row whose scores are in range


def log_sum_exp_and_mean(
    v: Tensor, conj_spectra: Tensor, n_labels: int, bias: Tensor | None
) -> tuple[Tensor, Tensor] | None:
    """log sum_i exp(<v, c_i> + bias_i) and its derivative by v, the mean of the label vectors weighted by the softmax.

    The result is None where the kernel has no plan for d, or where values are not finite or far out of range.

    Shapes: (rows, d), (bases, d // 2 + 1), (L) -> (rows), (rows, d)
    """
    plan = radices(v.shape[1])
    if plan is None or not bool(v.square().sum(1).amax() < MAX_SQUARE_LENGTH):
        return None
    if bias is not None and not (bias.is_cpu and bool(bias.amax() < torch.inf)):
        return None
    from holobind.codebooks import _softmax_kernel as kernel  # compiles when first used

    (rows, d), n_bases, lanes = v.shape, len(conj_spectra), kernel.LANES
    n_groups = -(-rows // kernel.ROWS)
    padded = nn.functional.pad(v, (0, 0, 0, n_groups * kernel.ROWS - rows)).view(n_groups, 2, lanes, d)
    pairs = torch.fft.fft(torch.complex(padded[:, 0], padded[:, 1])).div_(d)
    query = torch.view_as_real(pairs).permute(0, 2, 3, 1).flatten(1).contiguous().numpy()
    bases = torch.view_as_real(conj_spectra).flatten(1).numpy()
    biases = np.empty(0, np.float32) if bias is None else bias.detach().float().contiguous().numpy()
    labels = n_labels, biases, roll_of_position(plan)
    run, twiddles = kernel.sum_of_exponentials(d), twiddle_factors(plan)

    def sums(group: int, first: int, last: int, reference: Tensor, settle: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Reference, mass and total of the bases from `first` to `last`.  Shapes: -> (ROWS), (ROWS), (d * ROWS)"""
        reference, mass = reference.clone(), v.new_zeros(kernel.ROWS, dtype=torch.double)
        total, buffer = v.new_zeros(d * kernel.ROWS), v.new_empty(d * kernel.ROWS)
        arrays = reference.numpy(), total.numpy(), mass.numpy(), buffer.numpy()
        run(query[group], bases, first, last, *labels, twiddles, settle, *arrays)
        return reference, mass, total

    estimates = []  # the log sum exp of the first base: near that of the others, and not above that of all
    for group in range(n_groups):
        reference, mass, _ = sums(group, 0, 1, v.new_zeros(kernel.ROWS), settle=True)
        estimates.append(torch.where(mass > 0, reference + mass.log().float(), 0))
    step = max(-(-n_bases // MAX_TASKS), MIN_BASES_PER_TASK)

    def work(task: tuple[int, int]) -> tuple[int, Tensor, Tensor, Tensor]:
        group, first = task
        return group, *sums(group, first, min(first + step, n_bases), estimates[group], settle=False)

    references = torch.stack(estimates)
    masses = v.new_zeros(n_groups, kernel.ROWS, dtype=torch.double)
    totals = v.new_zeros(n_groups, d * kernel.ROWS)
    tasks = ((group, first) for group in range(n_groups) for first in range(0, n_bases, step))
    for group, reference, mass, total in threaded(work, tasks):
        now = torch.maximum(references[group], reference)
        old, new = ((before - now).double().exp_() for before in (references[group], reference))
        references[group], masses[group] = now, masses[group] * old + mass * new
        here, addend = totals[group].numpy(), total.numpy()
        kernel.rescale_rows(here, old.numpy())
        kernel.rescale_rows(addend, new.numpy())
        here += addend  # by numpy: torch would wake its threads, which take time from those of the tasks
    if not bool((masses > 0).all()):
        return None
    spectra = torch.view_as_complex(totals.view(n_groups, d, 2, lanes).permute(0, 3, 1, 2).contiguous())
    vectors = torch.fft.ifft(spectra)
    means = torch.cat([vectors.real, vectors.imag], 1).div_(masses[:, :, None])
    return (references + masses.log()).flatten()[:rows].float(), means.flatten(0, 1)[:rows]
