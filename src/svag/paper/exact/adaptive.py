r"""Adam, AdamW and RMSprop with exact answers: weights on a circle, and the averages that the optimizer keeps (ours).

The gradient of a batch is A sin θ + σ(1 + c cos θ)z, where the noise z is skewed and has two values. The state
is (θ, w) without momentum and (θ, m, w) with it, where w = v/l is the second moment in the units of the SDE.

The law of the state is a row of weights on a grid: trigonometric interpolation in θ, polynomial interpolation in m and
w. A step sends every grid point to one new state for each value of the noise, and interpolation spreads the weight of
the point over the grid; E f(state) is the row times f on the grid. The averages m and w are affine in what they
average, so polynomials stay polynomials, also where a state leaves the interval of the nodes. The error falls
exponentially in the number of nodes. The SDEs move the same row by their generators.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from math import exp, inf
from typing import Literal, TypeAlias

import numpy as np
from numpy.polynomial import chebyshev
from scipy.integrate import solve_ivp

from svag.arrays import FloatArray
from svag.paper.exact.noise import NoiseLaw, TwoValues
from svag.theory.adaptive import AdamSettings, RMSpropSettings

AdaptiveSettings: TypeAlias = AdamSettings | RMSpropSettings
UpdateOrder = Literal["torch", "previous"]
GridState: TypeAlias = tuple[FloatArray, ...]
"""θ, m if there is momentum, and w, each at every grid point."""
Functions: TypeAlias = Callable[[GridState], FloatArray]


@dataclass(frozen=True)
class CircleNodes:
    """Trigonometric interpolation at an odd number of equidistant nodes."""

    nodes: int

    @property
    def points(self) -> FloatArray:
        """The nodes."""
        return 2 * np.pi * np.arange(self.nodes) / self.nodes

    def weights(self, x: FloatArray) -> FloatArray:
        """Row i holds the weights of the nodes in the value at x_i."""
        k = np.arange(1, self.nodes // 2 + 1)
        kernel = np.exp(1j * np.outer(x, k)) @ np.exp(-1j * np.outer(k, self.points))
        return np.asarray((1 + 2 * kernel.real) / self.nodes, dtype=np.float64)

    def derivative(self) -> FloatArray:
        """The derivative on values at the nodes."""
        k = np.arange(1, self.nodes // 2 + 1)
        kernel = (1j * k * np.exp(1j * np.outer(self.points, k))) @ np.exp(-1j * np.outer(k, self.points))
        return np.asarray(2 * kernel.real / self.nodes, dtype=np.float64)


@dataclass(frozen=True)
class IntervalNodes:
    """Polynomial interpolation at the Chebyshev nodes of an interval, used beyond its ends too."""

    low: float
    high: float
    nodes: int

    @property
    def points(self) -> FloatArray:
        """The nodes."""
        unit = np.asarray(chebyshev.chebpts1(self.nodes), dtype=np.float64)
        return (self.high + self.low) / 2 + (self.high - self.low) / 2 * unit

    def weights(self, x: FloatArray) -> FloatArray:
        """Row i holds the weights of the nodes in the value at x_i."""
        return self._polynomials(x) @ np.linalg.inv(self._polynomials(self.points))

    def derivative(self) -> FloatArray:
        """The derivative on values at the nodes."""
        values = self._polynomials(self.points)
        coefficients = chebyshev.chebder(np.linalg.inv(values), scl=2 / (self.high - self.low))
        return np.asarray(values[:, :-1] @ coefficients, dtype=np.float64)

    def _polynomials(self, x: FloatArray) -> FloatArray:
        unit = (2 * x - self.high - self.low) / (self.high - self.low)
        return np.asarray(chebyshev.chebvander(unit, self.nodes - 1), dtype=np.float64)


Axis: TypeAlias = CircleNodes | IntervalNodes


@dataclass(frozen=True)
class AdaptiveProcess:
    """An optimizer that takes `ell` steps in the time of one, on noise of `ell` times the variance.

    Attributes:
        settings: of each step: what `refined` makes of the settings for SVAG, what `scaled` makes of them for κB.
        noise: the law of z in each step.
        ell: l for SVAG(l), 1/κ for the optimizer at κ times the batch.
        order: "torch" updates v before it divides by its root; "previous" divides by the root of the v before.
    """

    settings: AdaptiveSettings
    noise: NoiseLaw
    ell: float
    order: UpdateOrder = "torch"


def watched(state: GridState) -> FloatArray:
    """The functions whose expectations are compared: cos θ, sin θ, w, w cos θ, cos 2θ, and with momentum m and m²."""
    theta, w = state[0], state[-1]
    common = [np.cos(theta), np.sin(theta), w, w * np.cos(theta), np.cos(2 * theta)]
    return np.stack([*common, *(state[1] ** power for power in (1, 2) if len(state) == 3)], axis=1)


@dataclass(frozen=True)
class SettledStep:
    """Per step of the baseline, so that processes that take more or fewer steps can be compared.

    Attributes:
        second_moment: E v, not divided by anything.
        drift: E Δθ.
        diffusion: E Var(Δθ | v).
    """

    second_moment: float
    drift: float
    diffusion: float


@dataclass(frozen=True)
class AdaptiveProblem:
    """Gradients A sin θ + σ(1 + c cos θ)z on a circle, and the state in which an optimizer finds them.

    Weight decay λ acts on sin θ, a function on the circle that is θ near 0.

    Attributes:
        amplitude: A.
        deviation: σ.
        modulation: c.
        chance: the probability of the upper value of z.
        start: θ, m and w at the start; without momentum m is not used.
        age: how many steps Adam has taken at the start, for its bias corrections; infinite when they have died out.
        theta: the nodes of θ.
        first: the nodes of m.
        second: the nodes of w, where w is likely to be.
    """

    amplitude: float = 0.3
    deviation: float = 1.0
    modulation: float = 0.3
    chance: float = 0.3
    start: tuple[float, float, float] = (0.8, 0.2, 1.4)
    age: float = inf
    theta: CircleNodes = CircleNodes(33)
    first: IntervalNodes = IntervalNodes(-2.0, 2.0, 9)
    second: IntervalNodes = IntervalNodes(0.7, 2.6, 12)

    @property
    def noise(self) -> TwoValues:
        """The law of z."""
        return TwoValues(self.chance)

    def slope(self, theta: FloatArray) -> FloatArray:
        """The mean of the gradient."""
        return self.amplitude * np.sin(theta)

    def spread(self, theta: FloatArray) -> FloatArray:
        """The standard deviation of a batch gradient, the factor of z."""
        return self.deviation * (1 + self.modulation * np.cos(theta))

    def svag(self, settings: AdaptiveSettings, ell: int, order: UpdateOrder = "torch") -> AdaptiveProcess:
        """SVAG(l) with these settings in each sub-step."""
        return AdaptiveProcess(settings, self.noise.svag(ell), ell, order)

    def at_batch(self, settings: AdaptiveSettings, kappa: int, order: UpdateOrder = "torch") -> AdaptiveProcess:
        """The optimizer at κ times the batch, with these settings."""
        return AdaptiveProcess(settings, self.noise.batch(kappa), 1 / kappa, order)

    def path(self, process: AdaptiveProcess, steps: int, functions: Functions = watched) -> FloatArray:
        """E f(state) before the first and after each of the steps of a process, one column a function."""
        adam, age = _as_adam(process.settings, self.age)
        axes = self._axes(adam)
        state, row = _grid(axes), self._start(axes)
        branches = self._branches(process, axes[1:], state)
        values = functions(state)
        path = [row @ values]
        for taken in range(1, steps + 1):
            if taken == 1 or age != inf:  # without bias corrections every step is the same
                targets = [branch.target(age * process.ell + taken) for branch in branches]
            row = sum((branch.push(row, to) for branch, to in zip(branches, targets, strict=True)), np.zeros(row.size))
            path.append(row @ values)
        return np.array(path)

    def stationary(self, process: AdaptiveProcess, functions: Functions = watched) -> FloatArray:
        """E f(state) in the stationary law of a process whose bias corrections have died out, one entry a function."""
        axes = self._axes(_as_adam(process.settings, inf)[0])
        state = _grid(axes)
        branches = self._branches(process, axes[1:], state)
        step = sum(
            (branch.probability * _products(branch.target(inf), branch.rest) for branch in branches), np.zeros(())
        )
        return _invariant(step) @ functions(state)

    def settled_step(self, process: AdaptiveProcess, theta: float) -> SettledStep:
        """One step of a process without momentum at a fixed θ, in the stationary law of the second moment there."""
        adam, ell = _as_adam(process.settings, inf)[0], process.ell
        axis = self._likely(process, theta, forget=1 - adam.betas[1])
        state = np.full(axis.nodes, theta), axis.points
        branches = self._branches(process, [axis], state)
        p = np.array([branch.probability for branch in branches])
        moves = np.array([branch.move(inf) - theta for branch in branches])
        drift, square = p @ moves, p @ moves**2
        law = _invariant(np.tensordot(p, [branch.rest for branch in branches], 1))
        return SettledStep(
            float(ell * law @ axis.points), float(ell * law @ drift), float(ell * law @ (square - drift**2))
        )

    def _likely(self, process: AdaptiveProcess, theta: float, forget: float) -> IntervalNodes:
        """Five standard deviations to both sides of the mean of w, for averages that forget at this rate."""
        p, z = np.array(process.noise).T
        at = np.array(theta)
        squares = (self.slope(at) + self.spread(at) * z) ** 2 / process.ell
        mean = p @ squares
        reach = 5 * np.sqrt(forget / (2 - forget) * (p @ (squares - mean) ** 2))
        return IntervalNodes(float(max(mean - reach, mean / 20)), float(mean + reach), self.second.nodes)

    def limit_path(self, settings: AdaptiveSettings, time: int, ell: int = 1) -> FloatArray:
        """E f(state) of the SDE at the times 0, 1/l, 2/l, … of the optimizer with these settings."""
        adam, age = _as_adam(settings, self.age)
        axes = self._axes(adam)
        state, shape = _grid(axes), [axis.nodes for axis in axes]
        first = [axis.derivative() for axis in axes]
        second = [matrix @ matrix for matrix in first]

        def flow(t: float, row: FloatArray) -> FloatArray:
            drifts, diffusions = self._coefficients(adam, state, age + t)
            moved = np.zeros(shape)
            for i, (drift, diffusion) in enumerate(zip(drifts, diffusions, strict=True)):
                moved += _along(i, (row * drift).reshape(shape), first[i])
                moved += _along(i, (row * diffusion).reshape(shape), second[i])
            return moved.ravel()

        times = np.arange(time * ell + 1) / ell
        solved = solve_ivp(flow, (0, time), self._start(axes), "DOP853", times, rtol=1e-10, atol=1e-12)
        return np.asarray(solved.y.T @ watched(state), dtype=np.float64)

    def _coefficients(
        self, adam: AdamSettings, state: GridState, time: float
    ) -> tuple[list[FloatArray], list[FloatArray]]:
        """Drift, and half the variance per unit of time, of each coordinate of the SDE."""
        theta, w, none = state[0], state[-1], np.zeros(state[0].size)
        forget_first, forget_second = (1 - beta for beta in adam.betas)
        variance = self.spread(theta) ** 2
        gradient = self.slope(theta) + _coupled(adam) * np.sin(theta)
        rate = adam.lr / (np.sqrt(w / _correction(exp(-forget_second), time)) + adam.eps)
        decay = -adam.lr * _decoupled(adam) * np.sin(theta)
        settle = forget_second * (variance - w)
        if not adam.betas[0]:
            return [decay - rate * gradient, settle], [rate**2 * variance / 2, none]
        m = state[1]
        move = decay - rate * m / _correction(exp(-forget_first), time)
        return [move, forget_first * (gradient - m), settle], [none, forget_first**2 * variance / 2, none]

    def _branches(self, process: AdaptiveProcess, intervals: Sequence[Axis], state: GridState) -> "list[_Branch]":
        return [_Branch(self, process, intervals, state, p, z) for p, z in process.noise]

    def _axes(self, adam: AdamSettings) -> list[Axis]:
        return [self.theta, self.first, self.second] if adam.betas[0] else [self.theta, self.second]

    def _start(self, axes: Sequence[Axis]) -> FloatArray:
        start = self.start if len(axes) == 3 else (self.start[0], self.start[-1])
        at = [axis.weights(np.array([x]))[0] for axis, x in zip(axes, start, strict=True)]
        return np.asarray(reduce(np.kron, at), dtype=np.float64)


class _Branch:
    """One value of the noise: where it takes every grid point, and with which probability."""

    def __init__(
        self,
        bed: AdaptiveProblem,
        process: AdaptiveProcess,
        intervals: Sequence[Axis],
        state: GridState,
        probability: float,
        z: float,
    ) -> None:
        adam, _ = _as_adam(process.settings, inf)
        theta, v, (beta1, beta2) = state[0], process.ell * state[-1], adam.betas
        g = bed.slope(theta) + bed.spread(theta) * z + _coupled(adam) * np.sin(theta)
        m = beta1 * state[1] + (1 - beta1) * g if beta1 else g
        v_next = beta2 * v + (1 - beta2) * g**2
        averages = (m, v_next / process.ell) if beta1 else (v_next / process.ell,)
        weights = [axis.weights(x) for axis, x in zip(intervals, averages, strict=True)]
        self.probability, self.rest = probability, reduce(_products, weights)
        self._adam, self._circle, self._theta, self._m = adam, bed.theta, theta, m
        self._v = v_next if process.order == "torch" else v

    def move(self, taken: float) -> FloatArray:
        """θ after step number `taken`, which decides the bias corrections: θ − lr·m̂/(√v̂ + eps)."""
        adam, theta = self._adam, self._theta
        m_hat, v_hat = self._m / _correction(adam.betas[0], taken), self._v / _correction(adam.betas[1], taken)
        return theta - adam.lr * _decoupled(adam) * np.sin(theta) - adam.lr * m_hat / (np.sqrt(v_hat) + adam.eps)

    def target(self, taken: float) -> FloatArray:
        """The weights of the nodes of θ in step number `taken`."""
        return self._circle.weights(self.move(taken))

    def push(self, row: FloatArray, target: FloatArray) -> FloatArray:
        """The part of a row that takes this branch, after the step."""
        return ((self.probability * row[:, None] * target).T @ self.rest).ravel()


def _as_adam(settings: AdaptiveSettings, age: float) -> tuple[AdamSettings, float]:
    """RMSprop is Adam with β₁ = 0 whose bias corrections have died out."""
    if isinstance(settings, AdamSettings):
        return settings, age
    return AdamSettings(settings.lr, (0.0, settings.alpha), settings.eps, settings.weight_decay), inf


def _correction(beta: float, taken: float) -> float:
    return float(1 - beta**taken)


def _coupled(adam: AdamSettings) -> float:
    return 0.0 if adam.decoupled else adam.weight_decay


def _decoupled(adam: AdamSettings) -> float:
    return adam.weight_decay if adam.decoupled else 0.0


def _grid(axes: Sequence[Axis]) -> GridState:
    return tuple(x.ravel() for x in np.meshgrid(*(axis.points for axis in axes), indexing="ij"))


def _along(axis: int, values: FloatArray, matrix: FloatArray) -> FloatArray:
    """Multiply by a matrix from the right along one axis."""
    return np.moveaxis(np.tensordot(values, matrix, (axis, 0)), -1, axis)


def _products(one: FloatArray, other: FloatArray) -> FloatArray:
    """All products of an entry of each, row by row."""
    return (one[:, :, None] * other[:, None]).reshape(len(one), -1)


def _invariant(step: FloatArray) -> FloatArray:
    """The row of weights, summing to 1, that a step leaves as it is."""
    balance = np.vstack([step.T - np.eye(len(step)), np.ones(len(step))])
    return np.asarray(np.linalg.lstsq(balance, np.eye(len(step) + 1)[-1])[0], dtype=np.float64)
