"""The tables of docs/performance.md: which rows of benchmarks/results stand where, and what they
say. A section whose file is not there yet is left out.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """Rows of one name, restricted to `only`, as down x across of medians (p10..p90). `more` is
    shown beside a median, filled in from the fields of its row."""

    title: str
    name: str
    down: tuple[str, ...]
    across: str
    only: tuple[tuple[str, object], ...] = ()
    says: str = ""
    more: str = ""


@dataclass(frozen=True)
class Listing:
    """Rows of one name, one below the other. A column is (head, what stands there): `median`, a
    field of the row, or a peer; peers that were not measured in the same run are taken from rows
    of their own that are alike in `alike`."""

    title: str
    name: str
    columns: tuple[tuple[str, str], ...]
    only: tuple[tuple[str, object], ...] = ()
    alike: tuple[str, ...] = ("model", "batch", "context")
    says: str = ""


@dataclass(frozen=True)
class Section:
    """The tables of one file of results."""

    file: str
    title: str
    intro: str
    tables: tuple[Table | Listing, ...]


HOPPER = (
    Table("One hop between SMs, us", "hop", ("cap",), "handoff",
          says="`cap` is the number of 16 KB pages in flight an SM while the hop is timed (0: idle "
          "memory). Data that carries its flag costs 16-35% of a counter with release and acquire; "
          "the cap matters more to the counter (2.6 us at 3, 13 us at 12). One lane that watches "
          "first (`flag_watch`) is slower than reading every word at once for 32 values."),
    Table("Stream kept meanwhile, GB/s", "hop_stream", ("cap",), "handoff",
          says="Cap 3 keeps 97-98% of the stream, cap 4 all of it."),
    Table("Grid-wide dependency, 132 to 132, us", "grid_dependency", ("cap",), "handoff",
          says="Here every thread polls every word of its own, and a counter wins all-to-all. The "
          "compiled hand-off lets one lane of a warp watch a missing word, and is quicker up to "
          "some thousand words (see the hand-offs between compiled tasks)."),
    Table("L2 reads beside the HBM stream, GB/s (cap 12)", "l2_read",
          ("mode", "resident_mb"), "stream_policy", (("cap", 12),)),
    Table("HBM stream beside L2 reads, GB/s (cap 12)", "l2_stream",
          ("mode", "resident_mb"), "stream_policy", (("cap", 12),),
          says="Together they share about 8.3 TB/s into the SMs. With 16 MB to keep in L2 the "
          "stream needs the evict_first policy, or both lose a fifth."),
    Table("mma.sync against wgmma: fraction of bit-equal accumulators",
          "hmma_equals_hgmma", ("data", "k"), "n",
          says="Equal in every case, ill-conditioned data and subnormals included: a token's "
          "result can be bit-equal across the two paths if K is walked in the same order."),
    Table("A step of 225 MB in a graph of 20, us over one launch without boundaries",
          "step_boundary", ("mode",), "unit",
          says="Dependent launch saves 1.9 us of the 3.0 us at a boundary if the loads before "
          "`griddepcontrol.wait` are really issued before it; a cooperative launch takes back "
          "1.4."),
    Table("Hot text: instructions per clock and SM, 16 warps, idle memory", "hot_text",
          ("text_kb",), "start", (("warps", 16), ("cap", 0)),
          says="Up to 32 KB 2% is lost; from 64 KB on a quarter if all warps run the same code at "
          "the same time, and half and more if they do not."),
)

CHAIN = (
    Table("Read bandwidth of this run, GB/s", "read", ("kernel",), "megabytes",
          says="Kernels that only read: plain 16-byte loads, and bulk copies into a ring. The "
          "better one is the floor of what follows."),
    Table("One kernel for the chain, us a launch, and percent of read bandwidth", "chain",
          ("megabytes", "layers", "weights", "rows", "handoff"), "stream", more="{percent}%",
          says="Megabytes are the bf16 weights of one layer, rows those of one tile. Packed "
          "weights have a page (16 rows by 512 columns) in one piece. Without a "
          "stream a task loads its weights when its input is there; with it the loader is ahead, "
          "across layers."),
    Table("The same chain as a CUDA graph, us, and percent of read bandwidth", "peer",
          ("megabytes", "layers"), "peer", more="{percent}%",
          says="`read_kernels`: one kernel a layer that does nothing but read its weights, the "
          "bound for a kernel an operator. `torch`: mv and tanh."),
)

HANDOFFS = (
    Table("A token from worker to worker, us a hop", "token", ("values",), "handoff",
          says="Compiled one-tile tasks, each on the next worker, memory idle: wait, read, body, "
          "write, notify. A kind that is legal for no edge is refused."),
    Table("Every task needs all tasks of the round before, us a round", "everyone",
          ("tasks", "values"), "handoff",
          says="A grid as wide as the machine; `values` are what one task writes and all read."),
)

SCHEDULES = (
    Table("Dispatch: us a task, all workers together", "dispatch", ("workers",), "schedule",
          more="{us_each} each",
          says="Two grids of one-value tasks, each task of the second waiting for one of the "
          "first; the launch itself is taken off. `each` is what one worker spends on one task."),
    Table("Which schedule wins, us a launch", "schedule", ("program", "tasks"), "schedule",
          more="{picked}",
          says="`uniform`: all tasks cost the same. `uneven`: a tenth of them, anywhere, cost ten "
          "times as much. Beside the time, the schedule that ran."),
    Table("One cubin at every size (examples/mlp.py), us a launch", "size", ("n",), "unit",
          says="Compiled once; results compared with float64 at every n from 1 to 4096."),
)

LAUNCH = (
    Table("Host cost of a launch, us", "host", ("launch",), "unit"),
    Table("A launch inside a CUDA graph, us", "graph", ("launch",), "unit",
          says="A hundred launches of a small kernel in one graph. `dependent` is programmatic "
          "dependent launch."),
    Table("A planted deadlock until it is an error, s", "abort", ("floor",), "unit",
          says="`floor` is the configured limit; the next launch in the same process is right."),
    Table("An artifact in a fresh process, s", "artifact", ("part",), "unit",
          says="NumPy and the driver only: islpy and the compiler cannot be imported."),
    Table("Compiling an example, s", "compile", ("example",), "part",
          says="`prove`: all passes up to the plan. `cold` and `warm`: a whole `et.compile` with "
          "an empty and with a full cache."),
)

CPU = (
    Table("SmolLM2-135M, batch 1, 128 tokens: tokens/s", "decode", ("dtype", "read_gb_s", "floor"),
          "engine", more="{percent}% of the floor, {times}x",
          says="All cores, the same threads for both, in turns. `floor` is how often a second "
          "memory gives all weights and the cache; `read_gb_s` is what it gives to threads that "
          "only read. transformers has no fast bf16 products on processors without them: the row "
          "says little more than that."),
)

_CASE = (("model", "model"), ("batch", "batch"), ("context", "context"))
_MEASURED = (("ours", "median"), ("% of floor", "percent"), ("torch graph", "torch graph"),
             ("torch.compile", "torch.compile"))
_KERNEL = (("rows", "tokens"), ("workspace", "workspace_bytes"))
_DRAWN = (("MHz", "clock_mhz"), ("W", "watts"))
_OURS = (("engine", "eventtensor"),)

DECODE = (
    Listing("One step, ms", "step",
            (*_CASE, ("floor", "floor"), ("must", "must"), *_MEASURED, *_KERNEL, *_DRAWN), _OURS,
            says="The whole step with the greedy choice, random weights. `floor` is weights and "
            "cache over the read bandwidth of the same run, `rows` what the kernel is compiled for "
            "at most. The peers are the model as gpt-fast writes it (static cache), in a CUDA "
            "graph, and through torch.compile in one. `MHz` is the clock of the multiprocessors "
            "meanwhile, which falls where power (`W`, at most) comes to its limit, 700 W."),
    Listing("One step that draws its tokens, ms", "sampled",
            (*_CASE, ("floor", "floor"), *_MEASURED, *_KERNEL), _OURS,
            says="Temperature 0.8 and top_p 0.9, in the kernel; the peers sort."),
    Listing("A prompt, ms", "prefill",
            (("model", "model"), ("tokens", "prompt"), ("what", "part"), ("ours", "median"),
             ("vLLM 0.26", "vllm_ms"), *_KERNEL),
            says="By chunks of `rows` through the kernel that decodes; `+ 1` is a step after it. "
            "vLLM's is its published time for the prompt and a token."),
    Listing("Compiling a model without caches, s", "compile",
            (("model", "model"), ("rows", "tokens"), ("seconds", "median"))),
    Listing("From an artifact to the first token, s", "first_token",
            (("model", "model"), ("rows", "tokens"), ("all", "median"), ("load", "load_s")),
            says="The weights are on the device."),
)

_USED = (("experts a layer", "experts"), ("weights read", "weight_bytes"))

PHASES = (
    Listing("Phases of a layer, us", "phase",
            (*_CASE, ("phase", "phase"), ("us", "median"), ("its bytes", "floor"),
             ("tasks", "tasks"), ("one task", "task_us"), ("of it stalled", "stalled_us")),
            says="A phase lasts from the end of the one before until its last task has ended, in a "
            "traced step (1-2% slower than others); medians of the layers. Where a phase has no "
            "bytes, or fewer than the ring holds already, its time is that of hops: the stream "
            "stands still meanwhile. A task is stalled while it waits for pages or lines of x that "
            "have not come."),
)

MOE = (
    Listing("One step of a model with experts, ms", "decode",
            (*_CASE, ("floor", "floor"), ("must", "must"), *_MEASURED[:3], *_USED, *_KERNEL,
             *_DRAWN), _OURS,
            says="As in decoding; the floor is of the experts that the routing drew. The peer is "
            "PyTorch in a CUDA graph on the same weights, keys and values, with the grouped GEMM "
            "of the next table."),
    Listing("Layers of experts alone, us a layer", "chain",
            (("layers", "layers"), ("tokens", "batch"), ("floor", "floor"), ("ours", "median"),
             ("% of floor", "percent"), ("aim", "aim_percent"), ("Triton", "triton graph"), *_USED),
            _OURS, ("model", "batch", "layers"),
            says="From the router to the residual, all layers in one launch. The peer is the same "
            "in six kernels a layer, its two products by a grouped GEMM in Triton (the best of "
            "several tiles), in a CUDA graph."),
    Table("The schedules of experts, us a layer", "schedule", ("batch",), "schedule",
          says="The same tiles of both products by each schedule; `barrier` is `auto` with one "
          "event for all experts instead of one for each."),
    Listing("How far `auto` is off the best of them", "schedule",
            (("tokens", "batch"), ("auto, us a layer", "median"), ("% over the best", "over_best")),
            (("schedule", "auto"),)),
)

_STEP = (("model", "model"), ("clients", "clients"), ("rows", "rows_a_step"),
         ("each", "median"), ("mean", "mean"), ("p99", "p99"), ("bare steps, mean", "bare_step"),
         ("% more", "percent_more"))

ENGINE = (
    Listing("Between two steps that only decode, ms", "engine_step",
            (("model", "model"), ("batch", "batch"), ("launches", "launch"),
             ("from end to end", "median"), ("% more than the bare kernel", "percent_more")),
            says="512 tokens in, 128 out, in one process, by the GPU's clock. The bare kernel is "
            "launched with as many rows at the same context, again and again."),
    Listing("The bare kernel, ms", "engine_bare_step",
            (("model", "model"), ("batch", "batch"), ("step", "median"))),
    Listing("Between two kernels, us", "engine_gap",
            (("model", "model"), ("batch", "batch"), ("launches", "launch"), ("idle", "median")),
            says="From when the last worker of a launch leaves to when the next launch has begun, "
            "by the stamps of both. A `dependent` launch is there already when the one before "
            "ends; `with copies between` is how it was before inputs and tokens went aside."),
    Listing("A token of requests that begin together, ms", "latency_tpot",
            (("model", "model"), ("batch", "batch"), *_STEP[2:]),
            says="`bare steps` are launches with the rows that the steps had, prompts of others "
            "among them, weighted by the tokens that came out of each."),
    Table("What rows cost, ms a step", "engine_rows", ("model",), "rows",
          says="Bare steps in which one row gets a token and the others are those of a prompt: "
          "what `max_prefill_tokens` decides about."),
    Table("Tokens a second by so many clients", "serve_output", ("model",), "clients",
          says="512 tokens in, 128 out, each client asks again when it has its answer."),
    Table("To the first token behind HTTP, ms", "serve_ttft", ("model",), "clients"),
    Listing("A token behind HTTP, ms", "serve_tpot", _STEP,
            says="As above: most steps also read prompts of others."),
    Listing("A step behind HTTP, ms", "serve_steps", (*_STEP[:2], *_STEP[3:]),
            says="The last thousand steps, from the end of one to the end of the next."),
    Listing("A step behind HTTP that only decodes, ms", "serve_decoding",
            (*_STEP[:2], *_STEP[3:])),
    Table("Ready for all batch sizes, beside imports and weights, s", "startup_engine",
          ("model", "target"), "caches"),
)

SOAK = (
    Listing("What becomes of requests", "soak",
            (("model", "model"), ("clients", "clients"), ("requests", "requests"),
             ("whole", "whole"), ("refused", "refused"), ("left", "left"),
             ("asked again", "asked_again"), ("wrong", "wrong"), ("seconds", "median")),
            says="Clients that leave at any phase, and now and then a burst over the queue (429). "
            "Who is refused in a burst does not ask again, others do when the server says that "
            "they may. Whoever stays gets a whole answer or a clear error."),
    Listing("Nonsense, made by hand", "soak_nonsense",
            (("requests", "requests"), ("refused", "refused"), ("wrong", "wrong"))),
    Listing("Requests that schemathesis makes", "soak_described",
            (("requests", "requests"), ("whole", "whole"), ("refused", "refused"),
             ("wrong", "wrong")),
            says="After each, and after each nonsense, a request that makes sense is answered; "
            "`wrong` also counts answers of 500 and above, but 503."),
    Listing("Memory of the server after each quarter of the soak, MB", "soaked_resident",
            (("model", "model"), ("before", "before"), ("after", "each"),
             ("no page in use", "at_rest")),
            says="Resident, when nothing is asked; `before` is after a first quarter that does not "
            "count."),
)

STARTUP = (
    Table("From the start of a process to its first token, s", "startup_first_token",
          ("model", "target", "dtype"), "caches",
          says="`cold`: kernels are compiled and weights repacked; `warm`: both come out of the "
          "caches; `artifact`: kernels out of a folder of `eventtensor compile`."),
)

SECTIONS = (
    Section("hopper", "What the machine allows",
            "From `benchmarks/hopper.py`: the questions a persistent kernel depends on.", HOPPER),
    Section("chain", "A stream across tasks",
            "From `benchmarks/chain.py`: dependent matrix-vector products in one kernel.", CHAIN),
    Section("handoffs", "Hand-offs between compiled tasks",
            "From `benchmarks/handoffs.py`: each kind, forced.", HANDOFFS),
    Section("schedules", "Schedules", "From `benchmarks/schedules.py`.", SCHEDULES),
    Section("launch", "Around a launch", "From `benchmarks/launch.py`.", LAUNCH),
    Section("decode", "Decoding", "From `benchmarks/decode.py`.", DECODE),
    Section("phases", "Where a layer's time goes", "From `benchmarks/phases.py`.", PHASES),
    Section("moe", "Experts", "From `benchmarks/moe.py`.", MOE),
    Section("cpu", "A model on a CPU", "From `benchmarks/cpu.py`.", CPU),
    Section("startup", "Startup", "From `eventtensor bench startup`.", STARTUP),
    Section("engine", "The engine and its server on a GPU",
            "From `benchmarks/engine.py`.", ENGINE),
    Section("soak", "A server under everything", "From `benchmarks/soak.py`.", SOAK),
)
