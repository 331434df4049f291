"""A small checkout in the format of KernelBench, with problems of our own: one that is fine, and one for each thing that may be wrong."""

import textwrap

HEAD = "import torch\nimport torch.nn as nn\n"

FINE = """
class Model(nn.Module):
    def __init__(self, width, out):
        super(Model, self).__init__()
        self.layers = nn.Sequential(nn.Linear(width, out), nn.ReLU())
        self.shift = nn.Parameter(torch.randn(out))

    def forward(self, x):
        return torch.softmax(self.layers(x) + self.shift, dim=-1)

rows = 12
width = 24

def get_inputs():
    return [torch.rand(rows, width)]

def get_init_inputs():
    return [width, 20]
"""


def of(forward, inputs="[torch.rand(6, 10)]", constructor="pass", before=""):
    """A problem whose module does `forward` on `inputs`."""
    return HEAD + textwrap.dedent(before) + f"""
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {constructor}

    def forward(self, *x):
        return {forward}

def get_inputs():
    return {inputs}

def get_init_inputs():
    return []
"""


PROBLEMS = {
    "1_Probabilities": HEAD + FINE,
    "2_Dropped": of("self.drop(x[0])", constructor="self.drop = nn.Dropout(0.5)"),
    "3_Integers": of("nn.functional.cross_entropy(x[0], x[1])", "[torch.rand(6, 10), torch.randint(0, 10, (6,))]"),
    "4_Two_outputs": of("(x[0] + 1, x[0] * 2)"),
    "5_Does_not_parse": "class Model(nn.Module:\n",
    "6_Needs_a_package": of("x[0]", before="import a_package_that_nobody_has"),
    "7_Needs_the_network": of("x[0]", before="raise OSError(\"We couldn't connect to 'https://a.host' to load the files\")"),
    "8_Too_large": of("x[0] * 2", "[torch.rand(1 << 20, 1 << 20)]"),
    "9_Degenerate": of("x[0] - x[0].mean(-1, keepdim=True)", "[torch.rand(6, 1)]"),
    "10_Constructor_fails": of("x[0]", constructor="raise ValueError('the author made a mistake')"),
    "11_Defines_no_model": "def get_inputs():\n    return []\n",
    "12_Reads_values": of("x[0] * self.rates[1]", constructor="self.rates = [r.item() for r in torch.linspace(0, 1, 3)]"),
    "13_Trains_its_norm": of("self.norm(x[0]).relu()", "[torch.rand(6, 4, 5, 5)]", constructor="self.norm = nn.BatchNorm2d(4)"),
}


def write_checkout(root):
    """The folder of a checkout with all PROBLEMS in level 1, and one in each other level."""
    for level in (1, 2, 3, 4):
        folder = root / "KernelBench" / f"level{level}"
        folder.mkdir(parents=True)
        for name, text in PROBLEMS.items() if level == 1 else [("1_Probabilities", PROBLEMS["1_Probabilities"])]:
            (folder / f"{name}.py").write_text(text)
    (root / "KernelBench" / "level1" / "notes.txt").write_text("no problem\n")
    return root


def renamed(name, change="y"):
    """A solution of a problem: its own code with the class renamed, and `change` of its output y."""
    text = PROBLEMS[name].replace("class Model(", "class ModelNew(").replace("super(Model, self)", "super(ModelNew, self)")
    text = text[: text.index("def get_inputs")]
    return f"{text}\nright = ModelNew.forward\n\ndef changed(self, *inputs):\n    y = right(self, *inputs)\n    return {change}\n\nModelNew.forward = changed\n"
