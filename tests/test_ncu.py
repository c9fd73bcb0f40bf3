# SPDX-License-Identifier: Apache-2.0
"""Nsight Compute: which metrics are asked for, and what its CSV says."""

import pytest

from tilus import ncu
from tilus.errors import DeviceError

LISTED = """\
Device NVIDIA H200 (GH100)
-------------------------------------------------------------------------------
Metric Name                                   Metric Type     Metric Unit
gpu__time_duration                            Counter         ns
sm__cycles_elapsed                            Counter         cycle
sm__pipe_tensor_op_hmma_cycles_active         Counter         cycle
sm__inst_executed_pipe_tensor_op_gmma         Counter         inst
dram__bytes_read                              Counter         byte
dram__bytes_op_write                          Counter         byte
lts__t_bytes                                  Counter         byte
lts__t_sector_hit_rate                        Ratio
"""

CSV = """\
==PROF== Connected to process 4711 (/usr/bin/python3.12)
==PROF== Profiling "MatmulWGMMAV3" - 0: 0%....50%....100% - 7 passes
"ID","Process ID","Process Name","Kernel Name","Block Size","Grid Size","CC",\
"dram__bytes_read.sum",\
"gpu__time_duration.sum","launch__block_size","launch__occupancy_limit_blocks",\
"launch__occupancy_limit_registers","launch__occupancy_limit_shared_mem",\
"launch__occupancy_limit_warps","launch__registers_per_thread",\
"sm__inst_executed_pipe_tensor_op_gmma.avg.pct_of_peak_sustained_elapsed",\
"sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_elapsed"
"","","","","","","","byte","ns","","block","block","block","block","register/thread","%","%"
"0","4711","python3.12","MatmulWGMMAV3","(160, 1, 1)","(64, 64, 1)","9.0","1,082,130,432",\
"1663000","160","32","2","3","12","168","41.5","83.25"
"1","4711","python3.12","nvjet_sm90 <a, b>","(384, 1, 1)","(132, 1, 1)","9.0","900000000",\
"1.48e6","384","32","1","1","5","168","n/a","93.5"
""".splitlines()


def test_only_metrics_that_the_tool_lists_are_asked_for():
    wanted = ncu.metrics(LISTED)
    assert "dram__bytes_read.sum" in wanted and "dram__bytes_op_write.sum" in wanted
    assert "dram__bytes_write.sum" not in wanted
    tensor = [name for name in wanted if "tensor" in name]
    assert [name.partition(".")[0] for name in tensor] == [
        "sm__pipe_tensor_op_hmma_cycles_active", "sm__inst_executed_pipe_tensor_op_gmma"
    ]  # fmt: skip
    assert "launch__registers_per_thread" in wanted


def test_a_tool_without_what_is_needed_is_refused():
    with pytest.raises(DeviceError, match="no metric for l2_bytes"):
        ncu.metrics(LISTED.replace("lts__t_bytes", "lts__others"))


def test_launches_are_read_back():
    ours, rival = ncu.parse(CSV)
    assert (ours.kernel, rival.kernel) == ("MatmulWGMMAV3", "nvjet_sm90 <a, b>")
    found = ours.quantities()
    assert found["dram_read_bytes"] == 1082130432 and found["duration_ns"] == 1663000
    assert found["tensor_pipe_pct"] == 83.25 and found["registers"] == 168
    assert found["blocks_per_sm"] == 2 and found["threads"] == 160
    assert "limit_registers" not in found and "l2_bytes" not in found
    assert ours.metrics["sm__inst_executed_pipe_tensor_op_gmma.avg.pct_of_peak_sustained_elapsed"]
    assert rival.quantities()["duration_ns"] == 1.48e6


def test_what_could_not_be_read_is_no_number():
    metric = "sm__inst_executed_pipe_tensor_op_gmma.avg.pct_of_peak_sustained_elapsed"
    assert metric not in ncu.parse(CSV)[1].metrics


@pytest.mark.parametrize("lines", [CSV[:2], CSV[:4], ["==ERROR== ERR_NVGPUCTRPERM\n"], []])
def test_counters_that_cannot_be_read_are_an_error(lines):
    with pytest.raises(DeviceError, match="profiled no launch") as caught:
        ncu.parse(lines)
    assert ("ERR_NVGPUCTRPERM" in str(caught.value)) == ("ERR" in "".join(lines))


ACCOUNT = {
    "problem": {"m": 8192, "n": 8192, "k": 8192},
    "launches": [
        {"version": "v3", "schedule": {"num_stages": 4}},
        {"version": "cublas", "schedule": None},
    ],
}


def test_a_profile_says_who_did_what():
    made = ncu.profile(ACCOUNT, ncu.parse(CSV), "Nsight Compute 2025.3")
    assert made["launches"]["v3"]["schedule"] == {"num_stages": 4}
    assert made["launches"]["v3"]["tensor_pipe_pct"] == 83.25
    assert made["launches"]["cublas"]["kernel"] == "nvjet_sm90 <a, b>"
    assert made["problem"]["m"] == 8192 and made["profiler"] == "Nsight Compute 2025.3"


def test_a_launch_too_many_belongs_to_nobody():
    with pytest.raises(DeviceError, match="one launch of each of 2"):
        ncu.profile(ACCOUNT, ncu.parse([*CSV, CSV[-1]]), "")
