"""A head in real-valued operations, for ONNX and for runtimes without complex numbers.

Scores are affine in the head's input up to the label vectors, and every operation has a real form:

    table    scores = q V',                       V: all label vectors, if they take at most `max_table_bytes`
    DFT      scores = irfft(rfft(q) conj(B)) of an orbit, with both transforms as matrices of d x (d + 2): 2 d^2 floats
             and the L of the bases in place of L x d. The matrices cost d operations a label, as the table does
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from holobind._checks import integer
from holobind.codebooks import AbsoluteCodebook, BiasedCodebook, OrbitCodebook
from holobind.errors import OptionError
from holobind.heads.holographic import HolographicHead

MAX_TABLE_BYTES = 64 << 20


class ExportableHead(nn.Module):
    """The scores of a trained head, or its k best labels, with buffers and real-valued operations alone.

        program = torch.onnx.export(ExportableHead(head, k=5), (h,), dynamo=True, dynamic_shapes=({0: "rows"},))

    Its buffers are copies: it does not follow the head's training.

    k                 return the k best scores and their labels; without it, the scores of all labels
    logits            return logits, which is the softmax loss's temperature times the scores, plus the prior
    max_table_bytes   the largest table of label vectors; above, an orbit is scored by DFT matrices

    Shapes: (rows, in) -> (rows, L), or (rows, k), (rows, k) int64
    """

    weight: Tensor
    origin: Tensor
    bias: Tensor
    vectors: Tensor
    cosines: Tensor
    sines: Tensor
    inverse_real: Tensor
    inverse_imag: Tensor
    bases_real: Tensor
    bases_imag: Tensor

    def __init__(
        self,
        head: HolographicHead,
        k: int | None = None,
        *,
        logits: bool = False,
        max_table_bytes: int = MAX_TABLE_BYTES,
    ) -> None:
        super().__init__()
        if k is not None and not 1 <= integer("ExportableHead", "k", k) <= head.n_labels:
            raise OptionError(f"ExportableHead: k must be from 1 to the number of labels, {head.n_labels}; got {k}")
        self.k, self.n_labels = k, head.n_labels
        with torch.no_grad():
            n_inputs = head.output_dim if head.in_features is None else head.in_features
            device = head.codebook.device
            codebook, origin = head._query(torch.zeros(1, n_inputs, device=device))
            bias = torch.zeros(self.n_labels, device=device)
            if isinstance(codebook, BiasedCodebook):
                bias = codebook.bias.float()
                codebook = codebook.codebook
            self.absolute = isinstance(codebook, AbsoluteCodebook)
            if isinstance(codebook, AbsoluteCodebook):
                codebook = codebook.codebook
            weight = head._query(torch.eye(n_inputs, device=device))[1] - origin
            if logits and not head.has_prior:
                factor = head.temperature
                if factor is None:
                    raise OptionError(f"ExportableHead: the loss {head.loss_name!r} has no logits")
                weight, origin = weight * factor, origin * factor
            self.register_buffer("weight", weight.T.float().contiguous())
            self.register_buffer("origin", origin[0].float().contiguous())
            self.register_buffer("bias", bias)
            self.table = 4 * self.n_labels * codebook.dim <= max_table_bytes
            if self.table:
                vectors = codebook.scores(torch.eye(codebook.dim, device=device)).T.float().contiguous()
                self.register_buffer("vectors", vectors)
            elif isinstance(codebook, OrbitCodebook):
                self._set_transforms(codebook)
            else:
                raise OptionError(
                    f"ExportableHead: {self.n_labels} label vectors of {codebook.dim} dimensions take "
                    f"{4 * self.n_labels * codebook.dim / 1e6:,.0f} MB; allow that by max_table_bytes, or take an orbit"
                )

    def _set_transforms(self, codebook: OrbitCodebook) -> None:
        eye = torch.eye(codebook.dim, dtype=torch.float64, device=codebook.device)
        spectra = torch.fft.rfft(eye)  # row i is the spectrum of the i-th unit vector
        n = spectra.shape[1]
        halves = torch.eye(n, dtype=torch.complex128, device=codebook.device)
        inverse = [torch.fft.irfft(halves * unit, n=codebook.dim) for unit in (1, 1j)]
        bases = codebook._conj_spectra().detach()
        for name, tensor in (
            ("cosines", spectra.real),
            ("sines", spectra.imag),
            ("inverse_real", inverse[0]),
            ("inverse_imag", inverse[1]),
            ("bases_real", bases.real),
            ("bases_imag", bases.imag),
        ):
            self.register_buffer(name, tensor.float().contiguous())

    def forward(self, h: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        query = linear(h, self.weight, self.origin)
        scores = query @ self.vectors.T if self.table else self._by_transforms(query)
        scores = scores.abs() if self.absolute else scores + self.bias
        if self.k is None:
            return scores
        best, labels = scores.topk(self.k, dim=-1)
        return best, labels

    def _by_transforms(self, query: Tensor) -> Tensor:
        """The scores of an orbit.  Shapes: (rows, d) -> (rows, L)"""
        real, imag = (query @ self.cosines)[:, None], (query @ self.sines)[:, None]
        product_real = real * self.bases_real - imag * self.bases_imag
        product_imag = real * self.bases_imag + imag * self.bases_real
        scores = product_real @ self.inverse_real + product_imag @ self.inverse_imag
        return scores.flatten(1)[:, : self.n_labels]

    def extra_repr(self) -> str:
        return f"n_labels={self.n_labels}, k={self.k}, scored by {'a table' if self.table else 'DFT matrices'}"
