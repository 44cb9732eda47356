"""Golden instances and ids of real runs. A change of one of these is a breaking change of identity.

Whoever measured with an earlier keyspan would no longer find the run, or would find it and mean another graph. So a
number here is never edited: give a new field `metadata={"absent": ...}`, or raise the version of the one component
whose meaning changed, and add a line.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import pytest
import torch

from keyspan.attention.channel import ChannelBucket
from keyspan.attention.linear import LinearBucket
from keyspan.lab import recipes
from keyspan.problems import NoContents, embeddings, graphs
from keyspan.problems.dichotomies import Dichotomies
from keyspan.problems.graphs import Graph
from keyspan.problems.relations import Relations
from keyspan.specs import Channel, LinearUnit, Run, Spec


@dataclass(frozen=True)
class Golden:
    """A run and what it was when it was frozen. weights: SHA-256 of the initial weights, float64"""

    problem: Spec
    instrument: Spec
    problem_id: str
    run_id: str
    instance: str
    weights: str
    replicate: int = 0

    @property
    def run(self) -> Run:
        linear = isinstance(self.instrument, LinearUnit)
        return Run(
            problem=self.problem,
            replicate=self.replicate,
            instrument=self.instrument,
            recipe=recipes.separator() if linear else recipes.gradient(),
            stopping=recipes.SEPARATOR_STOPPING if linear else recipes.DEFAULT_STOPPING,
            arithmetic="fp64" if linear else "fp32",
        )


def adler(items: int, d_model: int, graph: Graph | None = None, rows: embeddings.Embeddings | None = None) -> Relations:
    """The relation problem, gaussian rows and a permutation unless said."""
    return Relations(items=items, d_model=d_model, graph=graph or Graph(), embeddings=rows or embeddings.Embeddings())


GOLDEN = [
    Golden(
        adler(128, 16),
        Channel(heads=4, d_key=12),
        problem_id="pe4293f98684887a2deb6ba0e",
        run_id="r840acabdb574b50e59e8e9ef",
        instance="19bca2fa50186fd4091537cd3eb455eed38eec95dc34626a96a28b9826a7bb20",
        weights="be7abd0a973af1b4c921a3a4c0b543ec159b861fcf0fc5d794e1beb754fecd5a",
    ),
    Golden(
        adler(128, 16),
        Channel(heads=4, d_key=12),
        problem_id="pd48169c924644864af3e5d5e",
        run_id="ra5711de2ab0dfd2322942e53",
        instance="4929c48db2fd23b5be411d4d37178f5f5f908dfd3c02a290a63ffa2ba0487088",
        weights="cb720d88301df2d8cdb5ae531aa9bf3989b97cab77bb4d27c739ceddb86fa782",
        replicate=1,
    ),
    Golden(
        adler(128, 16),
        Channel(heads=8, d_key=8),
        problem_id="pe4293f98684887a2deb6ba0e",
        run_id="r6d04998efe0f647fa4565efc",
        instance="19bca2fa50186fd4091537cd3eb455eed38eec95dc34626a96a28b9826a7bb20",
        weights="02ed968bddb3e8297e677de5dfd6948334d99169cec27e25547aed6d60865406",
    ),
    Golden(
        adler(512, 64),
        Channel(heads=2, d_key=24),
        problem_id="p874b2e518b13c4b287590565",
        run_id="rf4ffe61f885b8afce2e5b3cd",
        instance="15a8f6bbc5d148d4394cc1c72c24d32d5c93aa6f2ed3d2a0004496a8c0828fa7",
        weights="00d25ff8fc45a9071c5ec639feaa9ac599ba3aa1e1d191edbba00a91f5dde32d",
    ),
    Golden(
        adler(37, 37, rows=embeddings.one_hot()),
        Channel(heads=1, d_key=6),
        problem_id="p24ad789a3e48fa69be0b5ebd",
        run_id="r2a8824006437530d3ea15fb9",
        instance="c225b9499a56b6deac98d578be5ce752add33e5a54fbb217a7d77fecfe2cbbc1",
        weights="99a8f4b13b7eea6ef75ecfa0f0c68ead7271a71e15d50fbfad8ad87179deea9b",
    ),
    Golden(
        adler(61, 17, graph=graphs.permutation(loops=False), rows=embeddings.sign()),
        Channel(heads=3, d_key=5),
        problem_id="p12a92c7a079eeb75786f3036",
        run_id="rcaff39ed5da54216f0d0d1b0",
        instance="2b9809104e01f2b0d31c454fa8447c4351a9bc482ef6fc591be0ceb252780485",
        weights="f56d2a1319162d31de711bc600a0142ca527cc7773bc16194e29174f0a412edc",
    ),
    Golden(
        adler(61, 17, graph=graphs.functional(), rows=embeddings.sparse(4)),
        Channel(heads=5, d_key=3),
        problem_id="p2d6ed41c460f779886556a80",
        run_id="rad6ea047dc324c25f04e1cdd",
        instance="3f35df8618779608fea5025a299f85a548e415617476b8c6d5f78dffc70a8ae8",
        weights="360996d86e773f998e85087ccf8741776f6d16679b00b2435df199c62f777d41",
        replicate=2,
    ),
    Golden(
        adler(61, 17, graph=graphs.regular(3)),
        Channel(heads=7, d_key=2),
        problem_id="p10a557f2cfd83503b89c6d04",
        run_id="r55bb89ff86400712550fc84a",
        instance="f4e8ddbb1f8c2a0dd7fc8fbbae0a4a88017d3aa749c6527bd25a47ea398fa4f5",
        weights="d3f9fac53615118803ff8b5e095a508255cf91e81884f0afb54762f301592541",
    ),
    Golden(
        adler(61, 17, graph=graphs.out_regular(5, loops=False)),
        Channel(heads=1, d_key=1),
        problem_id="p7d1eec3ffb8a05d69ec00c9c",
        run_id="r300c5e0fa2c9ad7191b12f44",
        instance="4ff86c3878a2da99f413f344e3d6be58e84461f53c4bb08ced8bed036e7202b2",
        weights="7632c39e7588ba43e081e0a736652e9acd3048e1b1af51c11b9d3af5c199ade9",
    ),
    Golden(
        adler(61, 17, graph=graphs.erdos_renyi()),
        Channel(heads=16, d_key=1),
        problem_id="p982594a56022396171eb27ba",
        run_id="r597f565838003ceb0e00442b",
        instance="565250c1bb87e2c5616bf3c95529e95911056dfcb19ae169212b137d59bf1c0a",
        weights="5944677f05256be0679feaf82629b3f8223d9949ddab51febc0240d127f2e4f9",
    ),
    Golden(
        adler(61, 17, graph=graphs.power_law(97, exponent=1.5)),
        Channel(heads=2, d_key=7),
        problem_id="p8159a1037f965ac342382dd6",
        run_id="r2867dd7b243a6f0928324f14",
        instance="51834d6957590c642784e0a6146edb870158d1a9151f4cc5020ddc33884058c2",
        weights="aa50b0be08d15e0038a0c307a0a0a196d1429a4461c30fd82ae1263e066dea10",
    ),
    Golden(
        adler(61, 17, graph=graphs.bipartite(89)),
        Channel(heads=2, d_key=11),
        problem_id="peccd760d51abddd74d8108c2",
        run_id="r0af1592784a7bc71525c6174",
        instance="0de2ba67a53b8595f942e6b8f760a56205006296d4d5c7c21f34c51297df0917",
        weights="9e92c4d33a5ce72e23efecd6b21eda310c382aa3e469bb615dbb6285a63c3f8a",
    ),
    Golden(
        adler(61, 17, rows=embeddings.clustered(5, 0.75)),
        Channel(heads=3, d_key=4),
        problem_id="p06bd66765bee260e5671607a",
        run_id="ra77723cf8c59cdf4fc50ae61",
        instance="ecd44c6e70697946223f4bb3d67beb7f27022620443825e1d2034737dae3eef7",
        weights="42ddde7ac7bbe164a07444326604be9dfc8afe2254cf52e001bf8eaf7442043d",
        replicate=1,
    ),
    Golden(
        Dichotomies(dimension=16, examples=32),
        LinearUnit(),
        problem_id="pbe6475acdbe324d87ee7b832",
        run_id="r403a4353427123a6ef43746f",
        instance="d2c72f297197bcc9908979ebe0241783d0226099898ae91f33c16cc6c7b56030",
        weights="c86ff9f90a7d1ea7df847694488e44f8fcde2e4bd9f63da4753504375604aaff",
    ),
    Golden(
        Dichotomies(dimension=50, examples=101),
        LinearUnit(),
        problem_id="p18fc04c9ba55fd08095af6b6",
        run_id="rfc64f28516e0f7d7d1aa93e5",
        instance="c3ea1eb783bbdd75b7935f0ab036f3dbcacaf517772cb715bf07626aac97fb9e",
        weights="29b59ee2e5fbe92a33be0ab1fabe41c805ceea2256aee96452d487ff95f4ae91",
        replicate=7,
    ),
]


def name_of(golden: Golden) -> str:
    p = golden.problem
    if isinstance(p, Relations):
        return f"{p.graph.name}-{p.embeddings.name}-{p.items}-{p.d_model}-{golden.replicate}"
    return f"{p.family}-{golden.replicate}"


def initial_weights(run: Run) -> str:
    """SHA-256 of the weights that a member begins with, before they are rounded to its arithmetic."""
    kind = LinearBucket if isinstance(run.instrument, LinearUnit) else ChannelBucket
    recipe = run.recipe
    assert isinstance(recipe, recipes.Recipe)
    bucket = kind([run], recipe.loss, recipe.init_scale, recipe.bias, torch.device("cpu"))
    bucket.dtype = torch.float64
    answers = bucket.answers(bucket.init([run]), 0, run)
    h = hashlib.sha256()
    for name in sorted(answers):
        h.update(name.encode() + answers[name].astype("<f8").tobytes())
    return h.hexdigest()


@pytest.mark.parametrize("golden", GOLDEN, ids=name_of)
def test_the_ids_of_real_runs(golden: Golden) -> None:
    assert (golden.run.problem_id, golden.run.run_id) == (golden.problem_id, golden.run_id)


@pytest.mark.parametrize("golden", GOLDEN, ids=name_of)
def test_the_instances_of_real_runs(golden: Golden) -> None:
    instance = golden.problem.instance(golden.run.problem_id, NoContents())  # type: ignore[attr-defined]
    assert instance.digest == golden.instance


@pytest.mark.parametrize("golden", GOLDEN, ids=name_of)
def test_the_initial_weights_of_real_runs(golden: Golden) -> None:
    assert initial_weights(golden.run) == golden.weights


def test_two_architectures_meet_on_one_instance_and_nothing_else_coincides() -> None:
    one, other = GOLDEN[0], GOLDEN[2]
    assert (one.problem_id, one.instance) == (other.problem_id, other.instance)
    assert len({g.problem_id for g in GOLDEN}) == len({g.instance for g in GOLDEN}) == len(GOLDEN) - 1
    assert len({g.run_id for g in GOLDEN}) == len({g.weights for g in GOLDEN}) == len(GOLDEN)
