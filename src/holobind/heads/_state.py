"""The state of a holographic head besides its weights: the prior, and warnings about states that cannot be checked."""

import warnings
from typing import Any

import torch
from torch import Tensor

from holobind.codebooks import Codebook
from holobind.codebooks._fingerprint import FINGERPRINT, Fingerprinted


class HeadState(Fingerprinted):
    """Keeps the prior of a head, and loads states with or without one."""

    prior: Tensor | None
    log_temperature: Any
    codebook: Codebook

    def _keep_prior(self, prior: Tensor | None) -> None:
        """Set the prior, and keep it for `reset_parameters`: no seed draws it again."""
        self._given_prior = None if prior is None or prior.is_meta else prior.detach().cpu().clone()
        self.register_buffer("prior", prior)

    def _reset_state(self) -> None:
        if self.prior is not None and not self.prior.is_meta:
            with torch.no_grad():
                self.prior.zero_() if self._given_prior is None else self.prior.copy_(self._given_prior)

    def _verify(self) -> None:
        found = self._buffers.get(FINGERPRINT)
        if found is None or found is self._verified:
            return
        super()._verify()
        # A loader that assigns tensors moves only those of the state. Codebooks that p and m are bound to have none.
        for module in self.children():
            if isinstance(module, Codebook) and module.device.type == "meta" != self.codebook.device.type:
                module.to_empty(device=self.codebook.device)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        found = state_dict.get(f"{prefix}prior")
        fits = found is not None and found.shape == (self.codebook.n_labels,)
        if fits and self.prior is None and self.log_temperature is not None:
            # The prior was set from the counts of the training labels, which need not be known here.
            self.prior = torch.zeros_like(found, device=self.log_temperature.device)
        if f"{prefix}weight" in state_dict and f"{prefix}codebook.{FINGERPRINT}" not in state_dict:
            warnings.warn(
                f"{prefix or 'the state of a head '}has weights, but no codebook.{FINGERPRINT}: whether its label vectors "
                "are those of this head is not known",
                stacklevel=2,
            )
        super()._load_from_state_dict(state_dict, prefix, *arguments)
