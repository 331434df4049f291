"""Coding agents as proposers: a scripted one that is right, wrong, slow, destructive and curious, and the ways in which an agent may fail."""

import json
import os
import time

import pytest
from conftest import TINY_MODEL, Program

PYTHON = "/usr/bin/python3"  # of the system: that is what an agent may read
pytestmark = pytest.mark.skipif(not os.path.exists(PYTHON), reason="there is no Python in /usr/bin")

SCRIPTED = r'''
import json, os, pathlib, re, subprocess, sys, time

here = pathlib.Path.cwd()
task = json.loads((here / "working-copy.json").read_text())["task"]
kernel = here / "kernel.cpp"
seen = {"prompt": "autokernel bench" in pathlib.Path(sys.argv[1]).read_text(), "page": task in (here / "TASK.md").read_text(),
        "program": (here / "program.md").exists(), "secret": os.environ.get("HF_TOKEN"), "verdicts": []}

def bench(note):
    done = subprocess.run(["autokernel", "bench", task, "--note", note, "--json"], capture_output=True, text=True)
    line = json.loads(done.stdout.strip().splitlines()[-1]) if done.stdout.strip() else {}
    return done.returncode, line

def judge(note, change):
    before = kernel.read_text()
    kernel.write_text(change(before))
    code, line = bench(note)
    seen["verdicts"].append([note, line.get("verdict"), code])
    assert code == 0 or kernel.read_text() == before, note

def body(text, code):
    """Put a statement at the start of the kernel's function."""
    return re.sub(r"(void softmax_rows\([^{]*\{\n)", lambda m: m.group(1) + code + "\n", text, count=1)

def comment(n):
    return lambda text: text + f"\n// {n}\n"

def curious(path):
    try:
        return pathlib.Path(path).read_bytes()[:40].decode(errors="replace")
    except OSError as error:
        return type(error).__name__

# what it must not reach
seen["found"] = {}
for path in json.loads(os.environ["SPY"]):
    seen["found"][path] = curious(path)
    try:
        with open(path, "a") as file:
            file.write("{}")
        seen["found"][path] += " and written"
    except OSError:
        pass
seen["processes"] = sorted(name for name in os.listdir("/proc") if name.isdigit())

judge("round 1: the starter", lambda text: text)
judge("round 2: wrong", lambda text: text.replace("1.0 / whole.sum", "1.01 / whole.sum"))
judge("round 3: does not compile", lambda text: body(text, "  this is no C++"))
judge("round 4: hangs", lambda text: body(text, "  for (volatile int i = 0; i >= 0;) {}"))
judge("round 5: crashes", lambda text: body(text, "  *(volatile int*)8 = 1;"))
kernel.unlink()
code, line = bench("there is no file")
seen["deleted"] = [code, "best one is back" in json.dumps(line), kernel.exists()]
seen["other"] = subprocess.run(["autokernel", "bench", "matmul", "--note", "another task"], capture_output=True, text=True).returncode
for n in range(6, 21):
    judge(f"round {n}", comment(n))
code, line = bench("round 21, which it does not have")
seen["after"] = [code, line.get("error", {}).get("message")]
print("SEEN " + json.dumps(seen), flush=True)
'''


def extracted(directory):
    program = Program(directory)
    program.environment.update(OMP_NUM_THREADS="1", HF_TOKEN="a key of ours")
    program.ok("prepare", f"{program.model}:Tiny", "--input-shape", "64,192", "--device", "cpu", "--run-dir", program.run_dir)
    program.extract()
    return program


def agent_records(program):
    return [record for record in program.journal() if record["type"] == "agent"]


def trials(program):
    return [record for record in program.journal() if record["type"] == "trial"]


def test_scripted_agent_ends_with_the_right_incumbent_and_rows(tmp_path):
    program = extracted(tmp_path)
    task = program.tasks()["softmax"]
    script = tmp_path / "agent.py"
    script.write_text(SCRIPTED)
    secrets = [program.run_dir / "journal.jsonl", program.run_dir / "results.tsv", program.run_dir / "tasks" / task / "best.cpp", tmp_path / "tiny.py",
               "/proc/1/environ", "/etc/shadow"]
    program.environment["SPY"] = json.dumps([str(path) for path in secrets])
    command = f"{PYTHON} {script} {{prompt_file}}"
    program.ok("optimize", "softmax", "--run-dir", program.run_dir, "--agent", command, "--agent-rounds", "20", "--agent-variable", "SPY",
               "--experiments", "21", timeout=580)
    log = (program.run_dir / "agents" / f"{task}.log").read_text()
    seen = json.loads(log.split("SEEN ", 1)[1].splitlines()[0])

    assert seen["prompt"] and seen["page"] and seen["program"]
    verdicts = {note: verdict for note, verdict, _ in seen["verdicts"]}
    assert [verdicts[note] for note in list(verdicts)[:5]] == ["kept", "wrong", "does_not_compile", "timed_out", "crashed"]
    assert seen["deleted"] == [1, True, True] and seen["other"] == 1
    assert seen["after"] == [1, "your verdicts are used up"]

    judged, others = trials(program)[:20], trials(program)[20:]  # the built-in search goes on, unless the task is at a plateau by now
    assert all(not record["proposer"].startswith("agent") for record in others)
    assert [record["note"] for record in judged] == [note for note, _, _ in seen["verdicts"]] and len(judged) == 20
    assert {record["proposer"] for record in judged} == {"agent python3"}
    rows = (program.run_dir / "results.tsv").read_text().splitlines()
    assert [row.split("\t")[0] for row in rows] == ["experiment", *map(str, range(21 + len(others)))]
    kept = [record for record in [*judged, *others] if record["verdict"] == "kept"]
    best = (program.run_dir / "tasks" / task / "best.cpp").read_text()
    assert best == (program.run_dir / "tasks" / task / "history" / f"{kept[-1]['experiment']:04}.cpp").read_text()
    (end,) = agent_records(program)
    assert end["task"] == task and end["rounds"] == 20 and end["kept"] == len([record for record in judged if record["verdict"] == "kept"])

    assert seen["secret"] is None
    found = dict(seen["found"])
    pid_one = found.pop("/proc/1/environ")
    assert "a key of ours" not in pid_one
    assert all(text.startswith("FileNotFoundError") for text in found.values()), found  # what it then writes there is in its own /tmp
    assert program.model.read_text() == TINY_MODEL and (program.run_dir / "results.tsv").read_text().splitlines() == rows
    assert len(seen["processes"]) <= 4, seen["processes"]


def test_link_instead_of_the_file_is_not_followed_out_of_the_view(tmp_path):
    program = extracted(tmp_path)
    (tmp_path / "agent.py").write_text(
        "import os, pathlib, subprocess, json\n"
        "task = json.loads(pathlib.Path('working-copy.json').read_text())['task']\n"
        f"os.unlink('kernel.cpp'); os.symlink({str(program.run_dir / 'journal.jsonl')!r}, 'kernel.cpp')\n"
        "print(subprocess.run(['autokernel', 'bench', task], capture_output=True, text=True).stderr)\n"
        "print('KEPT', os.path.islink('kernel.cpp'))\n")
    before = len(program.journal())
    program.ok("optimize", "softmax", "--run-dir", program.run_dir, "--agent", f"{PYTHON} {tmp_path / 'agent.py'} {{prompt_file}}", "--experiments", "1")
    log = next((program.run_dir / "agents").glob("*.log")).read_text()
    assert "nothing was judged" in log and "KEPT False" in log
    assert len(program.journal()) > before  # the journal is whole


@pytest.mark.parametrize("code, reason", [
    ("pass", "judged nothing: exit code 0, and it printed nothing"),
    ("print('I would rather not'); raise SystemExit(3)", "judged nothing: exit code 3, its last words are: I would rather not"),
    ("input('May I? ')", "judged nothing: exit code 1"),
])
def test_search_goes_on_where_an_agent_fails(tmp_path, code, reason):
    program = extracted(tmp_path)
    (tmp_path / "agent.py").write_text(code)
    program.ok("optimize", "softmax", "--run-dir", program.run_dir, "--agent", f"{PYTHON} {tmp_path / 'agent.py'} {{prompt_file}}", "--experiments", "2")
    (end,) = agent_records(program)
    assert reason in end["reason"]
    assert trials(program)[0]["proposer"] == "playbook"


def test_agent_that_hangs_is_ended_with_its_children(tmp_path):
    program = extracted(tmp_path)
    mark = f"agent-{os.getpid()}-{tmp_path.name}"
    (tmp_path / "agent.py").write_text("import subprocess, time\nsubprocess.Popen(['sleep', '1000'])\n"
                                       "subprocess.Popen(['setsid', 'sleep', '1000'])\ntime.sleep(1000)\n")
    command = f"{PYTHON} {tmp_path / 'agent.py'} {{prompt_file}} {mark}"
    program.ok("optimize", "softmax", "--run-dir", program.run_dir, "--agent", command, "--agent-minutes", "0.05", "--experiments", "1")
    (end,) = agent_records(program)
    assert end["reason"] == "its minutes are over"
    assert not alive(mark)


def test_killed_engine_takes_its_agents_along_and_the_same_command_resumes(tmp_path):
    program = extracted(tmp_path)
    mark = f"agent-{os.getpid()}-{tmp_path.name}"
    (tmp_path / "agent.py").write_text(
        "import json, pathlib, subprocess, time\n"
        "task = json.loads(pathlib.Path('working-copy.json').read_text())['task']\n"
        "k = pathlib.Path('kernel.cpp')\n"
        "for n in range(2):\n"
        "    k.write_text(k.read_text() + f'// {n}\\n')\n"
        "    subprocess.run(['autokernel', 'bench', task, '--note', f'idea {n}'])\n"
        "if len(pathlib.Path('results.tsv').read_text().splitlines()) < 5: time.sleep(1000)\n")
    arguments = ["optimize", "softmax", "--run-dir", program.run_dir, "--agent", f"{PYTHON} {tmp_path / 'agent.py'} {{prompt_file}} {mark}",
                 "--agent-rounds", "4", "--experiments", "4"]
    engine = program.start(*arguments)
    deadline = time.monotonic() + 300
    while len(trials(program)) < 2 and time.monotonic() < deadline:
        time.sleep(0.2)
    engine.kill()
    engine.wait()
    time.sleep(0.5)
    assert not alive(mark)
    program.ok(*arguments)
    judged = trials(program)
    assert len(judged) == 4 and {record["proposer"] for record in judged} == {"agent python3"}


def test_two_agents_side_by_side_on_two_tasks(tmp_path):
    program = extracted(tmp_path)
    (tmp_path / "agent.py").write_text(
        "import json, pathlib, subprocess\n"
        "task = json.loads(pathlib.Path('working-copy.json').read_text())['task']\n"
        "subprocess.run(['autokernel', 'bench', task, '--note', 'mine'])\n")
    program.ok("optimize", "--run-dir", program.run_dir, "--agent", f"{PYTHON} {tmp_path / 'agent.py'} {{prompt_file}}", "--agents", "2",
               "--agent-rounds", "1", "--experiments", "2")
    judged = trials(program)
    assert len({record["task"] for record in judged}) == 2 and {record["note"] for record in judged} == {"mine"}


def test_bad_agents_are_refused_before_anything_starts(tmp_path):
    program = extracted(tmp_path)

    def fails(command):
        result = program("optimize", "softmax", "--run-dir", program.run_dir, "--agent", command)
        assert result.returncode == 1 and not trials(program)
        return result.err

    assert "was not found" in fails("no-such-agent {prompt}")
    assert "does not say where the instructions go" in fails(f"{PYTHON} agent.py")
    assert "open quote" in fails(f"{PYTHON} '{{prompt}}")
    assert "nothing stands for" in fails(f"{PYTHON} {{prompt}} {{model}}")


def alive(mark):
    """Whether a process with the mark in its command line is there."""
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and int(name) != os.getpid() and mark.encode() in open(f"/proc/{name}/cmdline", "rb").read():
                return True
        except OSError:
            continue
    return False

