"""What the SDE's value costs in examples at equal root-mean-square error, by four methods, on beds with exact answers.

Bias and Monte Carlo variance of every method are exact, so nothing here is random. A method estimates E g(X_T), X the
Itô SDE, by averages over seeds; its error is the root of bias² + variance. The targets: with c the limit of l·|bias| of
plain SVAG(l), plain SVAG at l = 1/ε has the bias εc, and uses its examples best with the variance 2(εc)²; the error of
that, √3·εc, is the target for everyone, at ε = 1/16, 1/64 and 1/256.

- plain: one ell, whole batches. SGD is ell = 1, at half the price of a pair.
- split: one ell, batches cut into 1, 2, 4 or 8 parts, at most ell/2.
- extrapolation: up to four ell, weights that cancel the leading powers of 1/l, seeds dealt optimally.
- both: the same with one split for all of its ell.

Every method may choose its ell (powers of two and three times those, to 1,024) with the exact bias in view. So that
none lives on a bias that happens to vanish at one ell, each is charged the larger of its own bias and that of the same
weights with every ell doubled. An effective step costs 2l/m batches of B, one if l = m = 1. The ratios do not depend on
the spread of g, as long as seeds need not be whole. With whole seeds they do: those are for g averaged over so many
independent copies of the bed that its standard deviation under the SDE is c/8, as of the accuracy of a network.

Budget: both, at least 8 times cheaper than plain at ε = 1/256, in the median over the beds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from statistics import median

import numpy as np

from svag.arrays import FloatArray
from svag.paper.exact.affine import AffineProblem
from svag.paper.exact.processes import Ito, Svag
from svag.paper.exact.regression import RegressionProblem
from svag.paper.verify.beds import CIRCLE, EFFECTIVE_STEPS, EXAMPLES, SKEWED, SYMMETRIC
from svag.stats.allocation import Allocation, Level, cheapest
from svag.theory.weights import pair_cost, svag_weights

SPLITS = (1, 2, 4, 8)
ELLS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
COARSE = tuple(ell for ell in ELLS if ell <= 64)  # what an extrapolation is made of
TARGETS = (16, 64, 256)
SPREADS = 8.0  # c over the standard deviation of g, where seeds are whole
GOAL = 8.0


@dataclass(frozen=True)
class Bed:
    """One test function of one problem.

    Attributes:
        name: of both.
        moments: E g and E g² at the end, under SVAG(ell, split).
        limit: E g under the SDE.
        splits: into how many parts a batch can be cut here.
    """

    name: str
    moments: Callable[[int, int], tuple[float, float]]
    limit: float
    splits: tuple[int, ...] = SPLITS

    def bias(self, ell: int, split: int) -> float:
        return self.moments(ell, split)[0] - self.limit

    def spread(self, ell: int, split: int) -> float:
        mean, square = self.moments(ell, split)
        return float((square - mean**2) ** 0.5)

    def constant(self) -> float:
        """The limit of l·|bias| of plain SVAG(l): 1/l² and 1/l³ are cancelled from three large l."""
        one, two, four = (ell * self.bias(ell, 1) for ell in (512, 1024, 2048))
        return abs((8 * four - 6 * two + one) / 3)


def affine_beds(name: str, problem: AffineProblem, splits: tuple[int, ...] = SPLITS) -> list[Bed]:
    limit = problem.limit_moments(Ito(), EFFECTIVE_STEPS, 3)[-1]

    @cache
    def moments(ell: int, split: int) -> FloatArray:
        step = problem.step_matrix(Svag(ell, split), 6)
        powers = np.linalg.matrix_power(step, EFFECTIVE_STEPS * ell)
        return np.asarray(powers @ problem.start ** np.arange(7.0), dtype=np.float64)

    def bed(degree: int) -> Bed:
        def both(ell: int, split: int) -> tuple[float, float]:
            found = moments(ell, split)
            return float(found[degree]), float(found[2 * degree])

        return Bed(f"{name}, x{'¹²³'[degree - 1]}".replace("x¹", "x"), both, float(limit[degree]), splits)

    return [bed(degree) for degree in (1, 2, 3)]


def circle_beds() -> list[Bed]:
    x, start = CIRCLE.grid, 5
    functions = {"cos x": np.cos(x), "sin x": np.sin(x), "cos 2x": np.cos(2 * x)}
    flow = CIRCLE.flow(Ito(), CIRCLE.lr * EFFECTIVE_STEPS)[start]

    @cache
    def row(ell: int, split: int) -> FloatArray:
        step = CIRCLE.step_matrix(Svag(ell, split))
        return np.asarray(np.linalg.matrix_power(step, EFFECTIVE_STEPS * ell)[start], dtype=np.float64)

    def bed(name: str, f: FloatArray) -> Bed:
        def both(ell: int, split: int) -> tuple[float, float]:
            return float(row(ell, split) @ f), float(row(ell, split) @ f**2)

        return Bed(f"circle, {name}", both, float(flow @ f))

    return [bed(name, f) for name, f in functions.items()]


def least_squares() -> RegressionProblem:
    """Three examples in two dimensions, in batches of four: few enough to enumerate all pairs of batches."""
    inputs, outputs = np.array([[1.0, 0.4], [-0.6, 1.2], [0.3, -0.9]]), np.array([1.0, -0.5, 0.8])
    hessians = np.einsum("ni,nj->nij", inputs, inputs)
    return RegressionProblem(hessians, outputs[:, None] * inputs, 0.4, 4, np.array([1.0, -1.0]))


def regression_beds(name: str, problem: RegressionProblem) -> list[Bed]:
    """The mean of the first weight, and the loss, whose variance takes the fourth moments of y = (1, x)."""
    size, each = problem.start.size + 1, problem.augmented()
    hessian, target = problem.hessians.mean(axis=0), problem.targets.mean(axis=0)
    loss = np.zeros((size, size))  # ½xᵀHx − bᵀx as a form in y
    loss[1:, 1:], loss[0, 1:], loss[1:, 0] = hessian / 2, -target / 2, -target / 2
    weight = np.zeros((size, size))
    weight[0, 1] = 1.0
    y = np.concatenate([[1.0], problem.start])
    fourth = np.kron(np.kron(y, y), np.kron(y, y))

    @cache
    def moments(ell: int, split: int) -> FloatArray:
        """E y⊗y⊗y⊗y at the end, by enumerating the batches of a step."""
        chosen = list(product(range(len(each)), repeat=problem.batch_size // split))
        means = np.array([each[list(batch)].mean(axis=0) for batch in chosen])
        a, b = svag_weights(ell, split)
        one = np.eye(size) - problem.lr / ell * (a * means[:, None] + b * means[None])
        one = one.reshape(-1, size, size)
        twice = np.einsum("kab,kcd->kacbd", one, one).reshape(len(one), -1)
        pair = size**2
        step = (twice.T @ twice / len(one)).reshape(pair, pair, pair, pair).transpose(0, 2, 1, 3)
        powers = np.linalg.matrix_power(step.reshape(pair**2, pair**2), EFFECTIVE_STEPS * ell)
        return np.asarray((powers @ fourth).reshape(pair, pair), dtype=np.float64)

    sde = problem.sde_moments(EFFECTIVE_STEPS)[-1]

    def bed(which: str, form: FloatArray) -> Bed:
        def both(ell: int, split: int) -> tuple[float, float]:
            found = moments(ell, split)
            # E y⊗y stands in the first row of E y⊗y⊗y⊗y, because the first entry of y is 1.
            return float(found[0] @ form.ravel()), float(form.ravel() @ found @ form.ravel())

        return Bed(f"{name}, {which}", both, float((sde * form).sum()), (1, 2, 4))

    return [bed("first weight", weight), bed("loss", loss)]


def beds() -> list[Bed]:
    batches = AffineProblem(EXAMPLES.noise, EXAMPLES.lr, batch_size=8, start=EXAMPLES.start)
    return [
        *affine_beds("skewed", SKEWED),
        *affine_beds("symmetric", SYMMETRIC),
        *affine_beds("examples", batches),
        *circle_beds(),
        *regression_beds("least squares", least_squares()),
    ]


@dataclass(frozen=True)
class Method:
    """How many ell are combined, and whether batches are cut."""

    name: str
    most: int
    cut: bool


METHODS = (Method("plain", 1, False), Method("split", 1, True), Method("extrap.", 4, False), Method("both", 4, True))


def best(bed: Bed, method: Method, error: float, *, whole: bool) -> tuple[Allocation, int]:
    """The cheapest plan of a method with this root-mean-square error, and its split."""
    found = []
    scale = bed.constant() / SPREADS / bed.spread(ELLS[-1], 1) if whole else 1.0
    for split in bed.splits if method.cut else (1,):
        ells = [ell for ell in (ELLS if method.most == 1 else COARSE) if split == 1 or ell >= 2 * split]
        levels = [Level(1 / ell, pair_cost(ell, split), scale * bed.spread(ell, split)) for ell in ells]

        def bias(chosen: Sequence[Level], weights: Sequence[float], split: int = split) -> float:
            own, doubled = (
                sum(w * bed.bias(round(times / level.x), split) for w, level in zip(weights, chosen, strict=True))
                for times in (1, 2)
            )
            return max(abs(own), abs(doubled))

        plan = cheapest(levels, error, bias, most=method.most, whole=whole)
        if plan is not None:
            found.append((plan, split))
    return min(found, key=lambda one: one[0].cost)


def ratios(bed: Bed, target: int, *, whole: bool) -> tuple[list[float], tuple[Allocation, int]]:
    """Cost of plain over the cost of each method, and the plan of the last."""
    error = 3**0.5 * bed.constant() / target
    plans = [best(bed, method, error, whole=whole) for method in METHODS]
    return [plans[0][0].cost / plan.cost for plan, _ in plans], plans[-1]


def described(plan: Allocation, split: int) -> str:
    ells = ", ".join(f"{n:,.0f}×{round(1 / level.x)}" for level, n in zip(plan.levels, plan.samples, strict=True))
    return f"seeds×ell {ells}; split {split}"


def main() -> None:
    every = beds()
    print("The SDE's value at equal root-mean-square error: examples of plain SVAG over those of each method")
    names = " ".join(f"{method.name:>8}" for method in METHODS[1:])
    for target in TARGETS:
        print(f"\nbias 1/{target} of c\n{'bed':<28} {names}   whole seeds: {names}   plan of both, whole seeds")
        columns = []
        for bed in every:
            found, _ = ratios(bed, target, whole=False)
            rounded, plan = ratios(bed, target, whole=True)
            columns.append([*found[1:], *rounded[1:]])
            cells = [f"{value:8.2f}" for value in columns[-1]]
            print(f"{bed.name:<28} {' '.join(cells[:3])}                {' '.join(cells[3:])}   {described(*plan)}")
        middle = [median(column) for column in zip(*columns, strict=True)]
        cells = [f"{value:8.2f}" for value in middle]
        print(f"{'median':<28} {' '.join(cells[:3])}                {' '.join(cells[3:])}")
    verdict = "met" if middle[2] >= GOAL else "missed"
    print(f"\nboth at 1/{TARGETS[-1]}: {middle[2]:.1f} times cheaper in the median (goal {GOAL:g}: {verdict})")


if __name__ == "__main__":
    main()
