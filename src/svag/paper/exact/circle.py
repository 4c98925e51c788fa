"""A nonlinear bed with exact answers: compound-Poisson gradients that are trigonometric polynomials on a circle.

Weights live on the circle, functions of them are Fourier series. The expected mode after a step is the mode times the
characteristic function of the step, known in closed form at every weight, so a step is a matrix on function values at
equidistant nodes (backward Kolmogorov equation), exact up to an aliasing error that falls exponentially in the number
of nodes. The SDEs are exponentials of such matrices.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import expm

from svag.arrays import FloatArray
from svag.paper.exact.processes import CharacteristicProcess, ComplexArray, Ito, Levy


@dataclass(frozen=True)
class CircleProblem:
    """Gradient = sum over a Poisson number (mean 1) of draws among the curves s_i(x) = c_i + A_i sin(x + φ_i).

    Attributes:
        offsets: c_i.
        amplitudes: A_i.
        phases: φ_i.
        probabilities: of each curve.
        lr: the learning rate η.
        nodes: how many Fourier nodes; 48 are exact once l is a few; many steps of SGD, which smooths less, want 300.
    """

    offsets: tuple[float, ...]
    amplitudes: tuple[float, ...]
    phases: tuple[float, ...]
    probabilities: tuple[float, ...]
    lr: float
    nodes: int = 48

    @property
    def grid(self) -> FloatArray:
        """The nodes on the circle."""
        return 2 * np.pi * np.arange(self.nodes) / self.nodes

    def curves(self) -> FloatArray:
        """s_i at every node: nodes × curves."""
        angle = self.grid[:, None] + np.array(self.phases)
        return np.asarray(np.array(self.offsets) + np.array(self.amplitudes) * np.sin(angle), dtype=np.float64)

    def step_matrix(self, process: CharacteristicProcess) -> FloatArray:
        """Matrix that takes f at the nodes to E f(next weight) at the nodes."""
        h, p, curves = self.lr / process.ell, np.array(self.probabilities), self.curves()
        mean, variance = (curves @ p)[:, None], (curves**2 @ p)[:, None]

        def centred(theta: FloatArray) -> ComplexArray:
            angle = theta[..., None] * curves[:, None, :]
            return np.asarray((np.exp(1j * angle) - 1 - 1j * angle) @ p, dtype=np.complex128)

        theta = np.broadcast_to(-h * self._modes(), (self.nodes, self.nodes))
        law = np.exp(1j * theta * mean + process.log_characteristic(centred, theta, variance))
        return self._on_nodes(law)

    def flow(self, limit: Ito | Levy, time: float) -> FloatArray:
        """Matrix that takes f at the nodes to E f(X_time) at the nodes."""
        return np.asarray(expm(time * self.generator(limit)), dtype=np.float64)

    def generator(self, limit: Ito | Levy) -> FloatArray:
        """The generator of the limit on functions at the nodes."""
        p, curves, k = np.array(self.probabilities), self.curves(), self._modes()
        if limit == Levy(printed=True):
            raise ValueError("the printed sign of the Lévy SDE is worked out for affine gradients only")
        if isinstance(limit, Levy):
            return self._on_nodes(np.exp(-1j * self.lr * k * curves[..., None]).swapaxes(1, 2) @ p - 1) / self.lr
        drift, variance = curves @ p, curves**2 @ p
        return self._on_nodes(-1j * k * drift[:, None] - self.lr / 2 * k**2 * variance[:, None])

    def _modes(self) -> FloatArray:
        return np.asarray(np.fft.fftfreq(self.nodes, 1 / self.nodes), dtype=np.float64)

    def _on_nodes(self, symbol: ComplexArray) -> FloatArray:
        """Operator f ↦ Σ_k f̂_k e^{ikx} symbol(x, k), on values at the nodes."""
        waves = np.exp(1j * self.grid[:, None] * self._modes())
        transform = waves.conj().T / self.nodes
        matrix = (waves * symbol) @ transform
        return np.asarray(matrix.real, dtype=np.float64)
