"""Generated grade-school word problems in GSM8K's layout.

A problem is a question and an answer whose every step carries a calculator note, ending in the marked number:

    Question: Ava has 4 pens. Ben has twice as many pens as Ava. How many pens do Ava and Ben have together?
    Answer:   Ben has 2 * 4 = <<2*4=8>>8 pens.
              Together they have 4 + 8 = <<4+8=12>>12 pens.
              #### 12

`easy` templates take one or two steps; `hard` ones two to four. The embedded model saw easy problems in pre-training
and never a hard template, so fine-tuning on the hard ones has something to teach.

Splits are disjoint by construction: a problem belongs to the split that a hash of its template and its numbers names,
so no template meets the same numbers in two splits, whatever the names, things and seeds around them.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

SPLITS = ("train", "validation", "test")
PEOPLE = (
    *((name, "she", "her") for name in "Ava Cara Ella Grace Iris Kira Mia Olga Rosa Tara".split()),
    *((name, "he", "his") for name in "Ben Dan Finn Hugo Jack Leo Noah Paul Sam Umar".split()),
)
THINGS = (
    "apples pears books pens stamps shells coins cards balls cups eggs roses toys stickers marbles cookies plums "
    "ribbons stones seeds"
).split()
BOXES = {"box": "boxes", "bag": "bags", "basket": "baskets", "jar": "jars", "crate": "crates"}
PLACES = "market school park farm library beach garden shop".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
TIMES = {2: "twice", 3: "3 times", 4: "4 times"}


@dataclass(frozen=True)
class Problem:
    """A word problem; `template` and `numbers` together say what it asks, whatever the names in it."""

    template: str
    numbers: tuple[int, ...]
    question: str
    answer: str

    @property
    def split(self) -> str:
        """The one split that may hold this problem: 80 % train, 10 % validation, 10 % test."""
        key = f"{self.template}:{','.join(map(str, self.numbers))}"
        bucket = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest()) % 10
        return {0: "validation", 1: "test"}.get(bucket, "train")


class Scene:
    """Who, what and where of one problem; remembers every number and wording drawn, which identify the problem."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        (self.a, self.she, self.her), (self.b, *_), (self.c, *_) = rng.sample(PEOPLE, 3)
        self.x, self.y = rng.sample(THINGS, 2)
        self.box = rng.choice(list(BOXES))
        self.boxes = BOXES[self.box]
        self.place = rng.choice(PLACES)
        self.day, self.later = rng.sample(DAYS, 2)
        self.numbers: list[int] = []
        self.wordings: list[int] = []

    @property
    def She(self) -> str:  # noqa: N802 - the pronoun at the beginning of a sentence
        return self.she.capitalize()

    def number(self, low: int, high: int) -> int:
        self.numbers.append(self.rng.randint(low, high))
        return self.numbers[-1]

    def wording(self, *options: str) -> str:
        self.wordings.append(self.rng.randrange(len(options)))
        return options[self.wordings[-1]]


Story = tuple[str, list[str], int]  # question, one sentence a step, final value
Template = Callable[[Scene], Story]
EASY: list[Template] = []
HARD: list[Template] = []
DIFFICULTIES = {"easy": EASY, "hard": HARD}


def easy(template: Template) -> Template:
    EASY.append(template)
    return template


def hard(template: Template) -> Template:
    HARD.append(template)
    return template


def step(expression: str, value: int) -> str:
    """`3 * 4` and 12 -> `3 * 4 = <<3*4=12>>12`."""
    return f"{expression} = <<{expression.replace(' ', '')}={value}>>{value}"


@easy
def gain(s: Scene) -> Story:
    have, more = s.number(2, 60), s.number(2, 39)
    story = s.wording(
        f"{s.a} has {have} {s.x}. {s.b} gives {s.a} {more} more {s.x}.",
        f"{s.a} had {have} {s.x} and found {more} more at the {s.place}.",
        f"There are {have} {s.x} in a {s.box}. {s.a} puts in {more} more {s.x}.",
    )
    total = have + more
    return f"{story} How many {s.x} are there now?", [f"There are {step(f'{have} + {more}', total)} {s.x} now."], total


@easy
def loss(s: Scene) -> Story:
    have = s.number(10, 99)
    gone = s.number(2, have - 2)
    story = s.wording(
        f"{s.a} has {have} {s.x}. {s.She} gives {gone} {s.x} to {s.b}.",
        f"{s.a} had {have} {s.x} and lost {gone} of them at the {s.place}.",
        f"There are {have} {s.x} in a {s.box}. {s.a} takes out {gone} {s.x}.",
    )
    left = have - gone
    return f"{story} How many {s.x} are left?", [f"There are {step(f'{have} - {gone}', left)} {s.x} left."], left


@easy
def boxes(s: Scene) -> Story:
    each, count = s.number(2, 12), s.number(2, 12)
    story = s.wording(
        f"Each {s.box} holds {each} {s.x}. {s.a} has {count} {s.boxes}.",
        f"{s.a} puts {each} {s.x} in each of {count} {s.boxes}.",
        f"{s.a} buys {count} {s.boxes} with {each} {s.x} in each {s.box}.",
    )
    total = each * count
    return (
        f"{story} How many {s.x} are there in all?",
        [f"There are {step(f'{count} * {each}', total)} {s.x} in all."],
        total,
    )


@easy
def share(s: Scene) -> Story:
    each, count = s.number(2, 12), s.number(2, 10)
    total = each * count
    story = s.wording(
        f"{s.a} shares {total} {s.x} equally among {count} friends. How many {s.x} does each friend get?",
        f"{s.a} packs {total} {s.x} into {count} {s.boxes} equally. How many {s.x} are in each {s.box}?",
    )
    return story, [f"Each gets {step(f'{total} / {count}', each)} {s.x}."], each


@easy
def gain_and_loss(s: Scene) -> Story:
    have, more = s.number(5, 60), s.number(2, 39)
    most = have + more
    gone = s.number(2, most - 1)
    left = most - gone
    return (
        f"{s.a} has {have} {s.x}. {s.She} buys {more} more {s.x} on {s.day} and gives {gone} {s.x} to {s.b} on "
        f"{s.later}. How many {s.x} does {s.a} have now?",
        [
            f"{s.a} has {step(f'{have} + {more}', most)} {s.x} after {s.day}.",
            f"{s.a} has {step(f'{most} - {gone}', left)} {s.x} after {s.later}.",
        ],
        left,
    )


@easy
def compare(s: Scene) -> Story:
    have, more = s.number(3, 50), s.number(2, 40)
    other = have + more
    total = have + other
    return (
        f"{s.a} has {have} {s.x}. {s.b} has {more} more {s.x} than {s.a}. How many {s.x} do they have together?",
        [
            f"{s.b} has {step(f'{have} + {more}', other)} {s.x}.",
            f"Together they have {step(f'{have} + {other}', total)} {s.x}.",
        ],
        total,
    )


@hard
def fold(s: Scene) -> Story:
    have, times = s.number(4, 25), s.number(2, 4)
    other = times * have
    total = have + other
    return (
        f"{s.a} has {have} {s.x}. {s.b} has {TIMES[times]} as many {s.x} as {s.a}. "
        f"How many {s.x} do {s.a} and {s.b} have together?",
        [
            f"{s.b} has {step(f'{times} * {have}', other)} {s.x}.",
            f"Together they have {step(f'{have} + {other}', total)} {s.x}.",
        ],
        total,
    )


@hard
def shopping(s: Scene) -> Story:
    some, others, price, other_price = (s.number(2, 9) for _ in range(4))
    first, second = some * price, others * other_price
    total = first + second
    return (
        f"At the {s.place} {s.a} buys {some} {s.x} for ${price} each and {others} {s.y} for ${other_price} each. "
        f"How much does {s.she} pay?",
        [
            f"The {s.x} cost ${step(f'{some} * {price}', first)}.",
            f"The {s.y} cost ${step(f'{others} * {other_price}', second)}.",
            f"{s.a} pays ${step(f'{first} + {second}', total)}.",
        ],
        total,
    )


@hard
def change(s: Scene) -> Story:
    count, price = s.number(2, 9), s.number(2, 9)
    cost = count * price
    note = next(note for note in (20, 50, 100) if note > cost)
    back = note - cost
    return (
        f"{s.a} buys {count} {s.x} that cost ${price} each and pays with ${note}. "
        f"How much money does {s.she} get back?",
        [f"The {s.x} cost ${step(f'{count} * {price}', cost)}.", f"{s.a} gets back ${step(f'{note} - {cost}', back)}."],
        back,
    )


@hard
def pages(s: Scene) -> Story:
    daily, days, left = s.number(4, 12), s.number(2, 7), s.number(3, 60)
    read = daily * days
    whole = read + left
    return (
        f"A book has {whole} pages. {s.a} reads {daily} pages a day for {days} days. How many pages are left to read?",
        [
            f"{s.a} reads {step(f'{days} * {daily}', read)} pages.",
            f"There are {step(f'{whole} - {read}', left)} pages left.",
        ],
        left,
    )


@hard
def half(s: Scene) -> Story:
    second = s.number(3, 45)
    first = 2 * second
    total = first + second
    return (
        f"{s.a} sold {first} {s.x} on {s.day} and half as many {s.x} on {s.later}. "
        f"How many {s.x} did {s.she} sell in both days?",
        [
            f"On {s.later} {s.a} sold {step(f'{first} / 2', second)} {s.x}.",
            f"In both days {s.she} sold {step(f'{first} + {second}', total)} {s.x}.",
        ],
        total,
    )


@hard
def tables(s: Scene) -> Story:
    seats, count, size = s.number(3, 8), s.number(3, 12), s.number(2, 5)
    everyone = seats * count
    groups = s.number(1, (everyone - 1) // size)
    children = groups * size
    adults = everyone - children
    return (
        f"There are {groups} groups of {size} children and {adults} adults at the {s.place}. Each table seats {seats}. "
        f"How many tables are needed?",
        [
            f"There are {step(f'{groups} * {size}', children)} children.",
            f"There are {step(f'{children} + {adults}', everyone)} people.",
            f"They need {step(f'{everyone} / {seats}', count)} tables.",
        ],
        count,
    )


@hard
def wage(s: Scene) -> Story:
    hourly, hours, days = s.number(2, 6), s.number(2, 5), s.number(2, 5)
    daily = hourly * hours
    earned = daily * days
    spent = s.number(2, earned - 2)
    left = earned - spent
    return (
        f"{s.a} earns ${hourly} an hour and works {hours} hours a day for {days} days. "
        f"{s.She} spends ${spent} on {s.x}. How much money is left?",
        [
            f"{s.a} earns ${step(f'{hours} * {hourly}', daily)} a day.",
            f"In {days} days {s.she} earns ${step(f'{days} * {daily}', earned)}.",
            f"There is ${step(f'{earned} - {spent}', left)} left.",
        ],
        left,
    )


@hard
def repack(s: Scene) -> Story:
    each, jars, count = s.number(2, 9), s.number(2, 9), s.number(2, 6)
    kept = each * jars
    held = s.number(kept // count + 1, kept // count + 8)
    total = held * count
    broken = total - kept
    return (
        f"{s.a} has {count} {s.boxes} with {held} {s.x} in each. {s.She} breaks {broken} {s.x} and packs the rest into "
        f"{jars} jars equally. How many {s.x} are in each jar?",
        [
            f"{s.a} has {step(f'{count} * {held}', total)} {s.x}.",
            f"After that {s.she} has {step(f'{total} - {broken}', kept)} {s.x}.",
            f"Each jar has {step(f'{kept} / {jars}', each)} {s.x}.",
        ],
        each,
    )


@hard
def three_people(s: Scene) -> Story:
    first, more, times = s.number(5, 30), s.number(2, 20), s.number(2, 3)
    second = first + more
    third = times * second
    two = first + second
    total = two + third
    return (
        f"{s.a} has {first} {s.x}. {s.b} has {more} more than {s.a}. {s.c} has {TIMES[times]} as many as {s.b}. "
        f"How many {s.x} do all three have?",
        [
            f"{s.b} has {step(f'{first} + {more}', second)} {s.x}.",
            f"{s.c} has {step(f'{times} * {second}', third)} {s.x}.",
            f"{s.a} and {s.b} have {step(f'{first} + {second}', two)} {s.x}.",
            f"All three have {step(f'{two} + {third}', total)} {s.x}.",
        ],
        total,
    )


def draw(rng: random.Random, templates: list[Template]) -> Problem:
    """One problem of any split."""
    template, scene = rng.choice(templates), Scene(rng)
    question, sentences, value = template(scene)
    wording = "".join(f"/{index}" for index in scene.wordings)
    return Problem(
        f"{template.__name__}{wording}", tuple(scene.numbers), question, "\n".join([*sentences, f"#### {value}"])
    )


def problems(split: str, difficulty: str, seed: int) -> Iterator[Problem]:
    """Endless distinct problems of one split; the same `seed` gives the same sequence."""
    rng, seen = random.Random(f"{seed}-{split}-{difficulty}"), set()
    while True:
        problem = draw(rng, DIFFICULTIES[difficulty])
        if problem.split == split and problem.question not in seen:
            seen.add(problem.question)
            yield problem
