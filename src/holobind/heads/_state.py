"""The state of a holographic head: first values, the prior, and warnings about states that cannot be checked."""

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from holobind.codebooks import Codebook
from holobind.codebooks._fingerprint import FINGERPRINT, Fingerprinted
from holobind.heads._layer import reset_layer

# Outputs are short at first. From a temperature of 1, training lengthens them before it learns anything else.
INITIAL_TEMPERATURE = 4.0


class HeadState(Fingerprinted):
    """Keeps the prior of a head, and loads states with or without one."""

    prior: Tensor | None
    log_temperature: Any
    codebook: Codebook

    if TYPE_CHECKING:
        weight: Any
        bias: Any
        loss_name: str
        trainable: tuple[str, ...]
        _layer_seed: int | None
        set_temperature: Callable[[float], bool]
        _drawn_keys: Callable[[], tuple[Tensor, Tensor]]

    def _keep_prior(self, prior: Tensor | None) -> None:
        """Set the prior, and keep it for `reset_parameters`: no seed draws it again."""
        self._given_prior = None if prior is None or prior.is_meta else prior.detach().cpu().clone()
        self.register_buffer("prior", prior)

    def reset_parameters(self) -> None:
        """Give the parameters new first values, as after construction; needed after `to_empty`.

        What a seed defines is made again from the seed. The prior becomes the one that was given or set.
        """
        with torch.no_grad():
            if self.prior is not None and not self.prior.is_meta:
                self.prior.zero_() if self._given_prior is None else self.prior.copy_(self._given_prior)
        self.codebook.reset_parameters()
        if self.weight is not None:
            reset_layer(self.weight, self.bias, self._layer_seed)
        self.set_temperature(INITIAL_TEMPERATURE)
        if FINGERPRINT in self._buffers and not self.fingerprint.is_meta:
            self._reset_fingerprint()
            for attribute, name, key in zip("pm", ("present", "missing"), self._drawn_keys(), strict=True):
                if name in self.trainable:
                    getattr(self, attribute).data.copy_(key)

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
        known = self.prior is not None or self.log_temperature is None
        if not known and found is not None and found.shape == (self.codebook.n_labels,):
            # The prior was set from the counts of the training labels, which need not be known here.
            self.prior = torch.zeros_like(found, device=self.log_temperature.device)
        if f"{prefix}weight" in state_dict and f"{prefix}codebook.{FINGERPRINT}" not in state_dict:
            warnings.warn(
                f"{prefix or 'the state of a head '}has weights, but no codebook.{FINGERPRINT}: whether its label "
                "vectors are those of this head is not known",
                stacklevel=2,
            )
        super()._load_from_state_dict(state_dict, prefix, *arguments)
