"""readme_roofline.py - the generated table of how far the ops of the sparse attention layer are from the roofline."""
import os
import re
import subprocess

from readme_results import fail, table

LAYER = ("sparse_mla_", "mla_mass_", "mla_index_", "indexer_", "compressor_", "kv_qat_", "grouped_linear_", "topk_")


def roofline_rows(s):
    """(op, dtype, cells) of `bench report --roofline` on the GPU's stored kernels, lowest share first."""
    path = os.path.join(s.machine, "kernels.csv")
    if not os.path.exists(path):
        return []
    command = [s.bench, "report", "--roofline", path, "--format", "markdown"]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode != 0:
        fail(ran.stderr.strip() or f"{s.bench}: exit code {ran.returncode}")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in ran.stdout.splitlines() if "?dtype=" in line]
    return [(*re.match(r"`(\w+)\?dtype=(\w+)", cells[0]).groups(), cells) for cells in rows]


def sparse_roofline(s):
    rows = [row for row in roofline_rows(s) if row[0].startswith(LAYER)]
    both = {op for op, dtype, _ in rows if dtype == "bf16"}
    kept = [cells for op, dtype, cells in rows if dtype == "bf16" or op not in both]
    return table(["op, implementation, shape", "time", "bytes", "FLOPs", "FLOP/B", "share", "bound by"], kept)
