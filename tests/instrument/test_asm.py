# SPDX-License-Identifier: Apache-2.0
"""What inline assembly changes shares no register with what it has yet to read."""

import re

import pytest

from tilus.instrument import record, watchdog

HELPERS = [*record.HELPERS, *watchdog.helpers(1.0, 4)]
ASM = re.compile(r"asm(?: volatile)?\((.*?)\);", re.DOTALL)


def statements(helper):
    """Yield, for each piece of assembly, its statements and the number of its outputs."""
    for text in ASM.findall(helper):
        code, *operands = re.split(r"\n?\s*:\s*(?=[\"\s])", text)
        outputs = operands[0].count('"') // 2 if operands else 0
        yield [s for s in re.split(r"[;{}]", re.sub(r'"|\\n', "", code)) if s.strip()], outputs


@pytest.mark.parametrize("helper", HELPERS)
def test_outputs_are_written_when_all_inputs_have_been_read(helper):
    """An input that has the value of an in-out operand may lie in its register."""
    for code, outputs in statements(helper):
        for number in range(outputs):
            target = re.compile(rf"^\s*(?:@!?\w+\s+)?[\w.:]+\s+%{number}\b")
            first = next((i for i, s in enumerate(code) if target.match(s)), len(code))
            later = " ".join(code[first + 1 :])
            inputs = [n for n in re.findall(r"(?<!%)%(\d+)", later) if int(n) >= outputs]
            assert not inputs, f"%{number} is written before {inputs} are read"
