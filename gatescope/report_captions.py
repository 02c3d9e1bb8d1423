"""How to read each picture of a report, in words that need no other page."""

READING = {
    "heatmap": """A row per unit, a column per step, padding left out.{keep} Columns that stand out are steps at which
        many units do the same; rows of one colour are units that do not react.{boundaries}""",
    "traces": """What keeps the memory stands above the memory itself, on one time axis: a fall of the upper line
        throws away what the lower one held. Shown are units that findings name, then those with the highest and the
        lowest mean.{boundaries}""",
    "saturation": """A point per unit and gate: to the right, the share of steps on which it is nearly shut, upwards,
        nearly open. Upper left is stuck open, lower right stuck shut; on the line it is always at one end or the
        other, so it switches; at the lower left it is graded.""",
    "resets": """A mark where a unit's retention falls and its memory is in fact lost, darker the more of it. Marks
        above each other are units that forget together.{boundaries}""",
    "alignment": """A point per unit that resets: to the right, the share of its resets within one step of a boundary,
        upwards, the share of boundaries with a reset near. Upper right: at all boundaries and nowhere else. Coloured
        units align better than chance (p below 0.05 against all circular shifts of their resets, corrected over all
        units).""",
    "around": """The mean retention and the mean size of the memory before and after the first step of a reset, for the
        units that reset most; dashed, their means over all steps. A memory that falls to nothing was thrown away; one
        that stays as large was overwritten.""",
    "triggers": """How many times as often as on average the units reset at each label; the line is the average.
        Coloured: more than at any other label, beyond chance. Beside a bar, how many units have it as their
        trigger.""",
    "timescales": """A point per unit, both axes in steps: to the right what its gate implies, upwards how slowly its
        memory in fact moves. Between the dashed lines the two agree within a factor of 2. Far above them, a forgetful
        unit follows an input that changes slowly; a dark edge marks units that keep for long and then forget at
        once.""",
    "selectivity": """For every class a point per unit: at 1 the unit is always higher there than elsewhere, at 0
        always lower, at 0.5 it cannot tell. Coloured points are no chance (p below 0.05 against all circular shifts,
        corrected over all units and classes). Rare classes reach the ends more easily.""",
    "roles": """Each unit by how long it remembers and how often it resets, coloured by the part it plays; the larger,
        the surer. Left edge: no time scale; right edge: it never forgets. A latch holds one of two classes by its
        sign, a counter grows step by step.""",
    "drift": """The trend of each unit's memory late in the sequences, from the smallest to the largest, with its
        interval. A unit whose interval holds 0 has settled; one far above it grows for as long as the sequence
        lasts.""",
    "gradient-flow": """How much of a small change of the state is left k steps later, which is also what a gradient
        is multiplied by on its way back: median and 10-90 % band, in powers of ten. A straight line down is a
        constant loss per step. Below the dotted lines less than 1 % is left, or less than float32 can tell from
        nothing.""",
    "cell-path": """A row per unit, steps back to the right: the share of its own memory that is still there, in
        powers of ten, by what keeps it alone. Left of the black line at least half is.""",
}


def reading(name: str, **parts: str) -> str:
    """The caption of a picture, on one line.

    >>> reading("heatmap", keep=" 1 keeps.", boundaries="")[:61]
    'A row per unit, a column per step, padding left out. 1 keeps.'
    """
    return " ".join(READING[name].format(**parts).split())
