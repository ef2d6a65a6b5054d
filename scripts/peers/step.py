"""step.py - training steps of a PyTorch model, by phases, eager or as a CUDA graph, for the scripts *_step.py.
A peer brings the model; the batch, the clip, AdamW, the timing and the rows are shared by all of them. Axes of a key that
change the step are honoured or refused; loss-chunk and mlp-chunk, which say how Plumb divides its work, are ignored.
"""
import re
import statistics

import torch

import common

PHASES = ["forward", "loss", "backward", "clip", "optimizer"]
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


class Case:
    """A case of bench's throughput or backward suite."""
    AXES = set("batch clip dtype layers loss-chunk mlp-chunk mode model rank recompute seq targets tuning".split())

    def __init__(self, key):
        self.suite, name, a = common.parse_key(key)
        if self.suite not in ("throughput", "backward") or name != "step":
            common.die(f"{key}: a step is throughput/step?... or backward/step?...", 2)
        try:
            self.model, self.tuning, self.mode, self.dtype = a["model"], a["tuning"], a["mode"], DTYPES[a["dtype"]]
            self.B, self.S, self.layers, self.rank = (int(a[n]) for n in ("batch", "seq", "layers", "rank"))
            self.targets, clip = a["targets"].split("+"), a["clip"]
            self.recompute = a.get("recompute", "none")
        except (KeyError, ValueError) as error:
            common.die(f"{key}: axis {error}", 2)
        if clip != "multi" or self.tuning not in ("full", "lora", "qlora") or self.mode not in ("eager", "graph"):
            common.die(f"{key}: peers have clip=multi, tuning=full, lora or qlora, mode=eager or graph", 2)
        if self.recompute not in ("none", "layer"):
            common.die(f"{key}: peers have recompute=none or layer, not {self.recompute}", 2)
        for axis in sorted(set(a) - self.AXES):
            common.die(f"{key}: peers do not have the axis {axis}", 2)
        self.geometry = common.geometry(self.model)
        self.layers = self.layers or self.geometry["L"]

    def group(self):
        """Cases of one group train the same model."""
        return self.model, self.layers, self.tuning, str(self.dtype), self.rank, tuple(self.targets), self.recompute


class Step:
    """`logits` maps ids [B,S] to logits [B,S,V], or to what `loss` needs instead of them; `loss` maps that and targets
    to the mean over loss tokens."""

    def __init__(self, model, case, device):
        ids, targets = common.batch(case.B, case.S)
        self.ids, self.targets = torch.tensor(ids, device=device), torch.tensor(targets, device=device)
        self.model = model
        self.params = [p for p in model.params if p.requires_grad]
        decay = [p for p in self.params if p.dim() > 1]
        plain = [p for p in self.params if p.dim() < 2]
        groups = [{"params": decay, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
        # In a replayed graph, AdamW must read its learning rate and step number from device memory.
        graph = case.mode == "graph"
        self.adamw = torch.optim.AdamW([g for g in groups if g["params"]], fused=True, capturable=graph,
                                       lr=torch.tensor(1e-4, device=device) if graph else 1e-4)
        self.out = self.value = None

    def forward(self):
        for p in self.params:
            p.grad = None
        self.out = self.model.logits(self.ids)

    def loss(self):
        self.value = self.model.loss(self.out, self.targets)
        self.out = None

    def backward(self):
        # Not .backward(): an accumulation node keeps the stream on which it was made, and capturing it fails.
        for p, grad in zip(self.params, torch.autograd.grad(self.value, self.params)):
            p.grad = grad
        self.value = self.value.detach()

    def clip(self):
        torch.nn.utils.clip_grad_norm_(self.params, 1.0)

    def optimizer(self):
        self.adamw.step()

    def run(self, names=PHASES, mark=lambda: None):
        for name in names:
            getattr(self, name)()
            mark()

    def warm_up(self, device):
        """Runs two steps; on a GPU on a side stream, which capturing requires."""
        if device == "cpu":
            return [self.run() for _ in range(2)]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.run()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()

    def record(self, *parts):
        """Captures a graph for each list of phases, in one memory pool; they are replayed in this order."""
        graphs, pool = [], torch.cuda.graph_pool_handle()
        for names in parts:
            graphs.append(torch.cuda.CUDAGraph())
            with torch.cuda.graph(graphs[-1], pool=pool):
                self.run(names)
        return graphs


def count_launches(call):
    """Returns the number of kernel launches and other operations that the host enqueues in one call, from the
    profiler."""
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as p:
        call()
        torch.cuda.synchronize()
    enqueue = re.compile(r"cu(da)?(LaunchKernel|LaunchCooperative|GraphLaunch|Memcpy\w*Async|Memset\w*Async)")
    n = sum(e.count for e in p.key_averages() if enqueue.match(e.key))
    if not n:
        raise RuntimeError("the profiler saw no kernel launch")
    return n


def timed(case, step):
    """Returns the call to sample, which records points in time around what the suite measures, and the phases
    between them."""
    backward = case.suite == "backward"
    names = ["backward", "clip"]
    if case.mode == "graph":
        graphs = step.record(PHASES[:2], names) if backward else step.record(PHASES)

        def replay(mark):
            for g in graphs[:-1]:
                g.replay()
            mark()
            graphs[-1].replay()
            mark()
        return replay, [f"{case.suite}:all"]

    def eager(mark):
        if backward:
            step.run(PHASES[:2])
        mark()
        step.run(names if backward else PHASES, mark)
    return eager, names if backward else PHASES


class Peer:
    """Measures the cases of one peer; `build(case, device)` returns a model with params, logits and loss."""

    def __init__(self, build, device):
        self.build, self.device, self.memory, self.launches = build, device, common.Memory(device), {}
        self.key = self.model = None

    def measure(self, case, key, rows):
        if case.mode == "graph" and self.device == "cpu":
            raise NotImplementedError("PyTorch has no graphs on a CPU")
        if self.key != case.group():
            self.model = None
            torch.manual_seed(42)
            self.model, self.key = self.build(case, self.device), case.group()
        step = Step(self.model, case, self.device)
        step.warm_up(self.device)
        self.memory.reset()  # after the first steps: compiling and choosing kernels takes memory that a step does not
        call, phases = timed(case, step)
        seconds, host = common.sample(self.device, call)
        peak, loss, n = self.memory.peak(), float(step.value), len(seconds)
        if case.suite == "throughput" and case.mode == "eager":
            for i, phase in enumerate(phases):
                rows.emit(key, f"{phase}_time", common.median_of(seconds, i), n)
        total = statistics.median(map(sum, seconds))
        rows.emit(key, "step_time" if case.suite == "throughput" else "backward_time", total, n)
        rows.emit(key, "tokens_per_second", case.B * case.S / total)
        rows.emit(key, "loss", loss)
        rows.emit(key, "peak_memory", peak)
        if self.device != "cpu":
            self.gpu_rows(case, key, rows, step, statistics.median(host), n)

    def gpu_rows(self, case, key, rows, step, host, n):
        free, total = torch.cuda.mem_get_info()
        if case.suite == "throughput":
            rows.emit(key, "host_time", host, n)
        rows.emit(key, "device_memory", float(total - free))
        if case.mode == "graph":
            return rows.emit(key, "kernel_launches", 1.0)
        which = (case.group(), case.suite)  # the row length does not change them, and profiling takes a second
        try:
            if which not in self.launches:
                step.run(PHASES[:2])
                self.launches[which] = count_launches(
                    step.run if case.suite == "throughput" else lambda: step.run(["backward", "clip"]))
            rows.emit(key, "kernel_launches", float(self.launches[which]))
        except Exception as error:  # a failure of the profiler does not invalidate the measurement
            rows.emit(key, "kernel_launches", None, 0, "unsupported", " ".join(str(error).split())[:200])


def main(doc, build, note):
    o = common.peer_options(doc)
    cases = [(key, Case(key)) for key in o.keys]
    peer = Peer(build, o.device)
    threads = f", {o.threads or torch.get_num_threads()} threads" if o.device == "cpu" else ""
    return common.peer_main(o, cases, note + threads, peer.measure, Case.group)
