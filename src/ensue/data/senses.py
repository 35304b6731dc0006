"""The built-in corpus ``bank``: sentences with ambiguous words, each in one of two senses.

    a nice walk by the river bank        walk to the bank and get cash

Static word vectors have one vector for *bank* in both sentences; a contextual model can tell them apart. A
nearest-neighbour test measures how well: half of the contexts of each sense are known, the other half are queries, and
a query should be nearest to known contexts of its own sense.

Both senses have equally many sentences with varied words. In both senses *play* is sometimes a noun and sometimes a
verb, so that grammar alone does not tell them apart. Words and punctuation are separated by spaces, as in the corpora
that word models are trained on. Some sentences are from the lectures.
"""

from __future__ import annotations

from dataclasses import dataclass

from ensue.core.errors import unknown_name

WORD_MARKER = "*"
"""Stands before the word that a sentence is about."""

PARTS = ("known", "asked")
"""The halves: contexts to look among, and contexts to look up."""


@dataclass(frozen=True, slots=True)
class Context:
    """A word in a sentence, and in which sense.

    >>> Context.parse("a nice walk by the river *bank", "river")
    Context(words=('a', 'nice', 'walk', 'by', 'the', 'river', 'bank'), position=6, sense='river')
    """

    words: tuple[str, ...]
    """The sentence, in words and punctuation."""
    position: int
    """Index of the word it is about."""
    sense: str
    """A name for the meaning; empty where nobody has said."""

    @property
    def word(self) -> str:
        """The word it is about, as it is written there."""
        return self.words[self.position]

    @property
    def text(self) -> str:
        """The sentence, with a space between its words."""
        return " ".join(self.words)

    @staticmethod
    def parse(line: str, sense: str = "") -> Context:
        """A sentence in which a mark stands before the word."""
        words = line.split()
        position = next(index for index, word in enumerate(words) if word.startswith(WORD_MARKER))
        words[position] = words[position].removeprefix(WORD_MARKER)
        return Context(tuple(words), position, sense)


def contexts(word: str, part: str = "") -> list[Context]:
    """The sentences about *bank* or *play*, sense after sense; of one part, ``known`` or ``asked``, or of both.

    >>> sorted({context.sense for context in contexts("bank")}), len(contexts("play")), len(contexts("play", "asked"))
    (['money', 'river'], 88, 44)
    """
    if word not in SENSES:
        raise unknown_name("word with senses", word, SENSES)
    if part and part not in PARTS:
        raise unknown_name("part of the contexts", part, PARTS)
    chosen = []
    for sense, lines in SENSES[word].items():
        own = [Context.parse(line, sense) for line in lines.strip().splitlines()]
        half = len(own) // 2
        chosen += {"known": own[:half], "asked": own[half:]}.get(part, own)
    return chosen


def sense_text() -> str:
    """All sentences, one a line: the text of the corpus."""
    return "".join(f"{context.text}\n" for word in SENSES for context in contexts(word))


SENSES = {
    "bank": {
        "river": """
            a nice walk by the river *bank
            They pulled the canoe up on the muddy *bank and made a fire .
            Willows grew along the *bank , and their roots held the soil against the flood .
            An old man sat on the *bank all afternoon with a rod and a tin of worms .
            The stream had cut so deep that the *bank stood higher than a horse .
            We swam across and lay down to dry on the far *bank .
            Heavy rain washed away part of the *bank below the bridge .
            Cattle came down to the *bank in the evening to drink .
            The ferry was tied to a post on the east *bank of the river .
            Otters have dug a den into the *bank under the alder trees .
            The soldiers camped on the left *bank of the Rhine and waited for boats .
            Reeds hid the *bank so well that the ducks nested there unseen .
            She slipped on the wet grass of the *bank and fell into the water .
            A narrow path follows the *bank from the mill to the old weir .
            The current carried the raft toward the opposite *bank .
            Children gathered smooth stones on the *bank of the creek .
            Salmon rested in the shade where the *bank hung over the pool .
            In spring the lake rises and covers the *bank up to the meadow .
            The beaver dragged a branch up the *bank and into its lodge .
            He moored the barge close to the *bank for the night .
            Fishermen dried their nets along the north *bank of the Danube .
            The water was low , and sand showed on either *bank .
            The *bank that is on the other side of that wide river .
            Farmers built a dike of clay to raise the *bank before the snow melted .
            A heron stood without moving at the foot of the *bank .
            The road ran beside the canal , a yard from the edge of the *bank .
            They buried the dog on the *bank above the brook , beneath a beech .
            The boy threw his line in from the *bank and caught a trout .
            Wild mint covers the shady *bank of the brook in June .
            Two swans led their young from the *bank into the deep water .
            The explorers marched for days up the western *bank of the Nile .
            Waves from the steamer beat against the *bank and loosened the earth .
            The tent stood on a grassy *bank where the two rivers meet .
            Frogs jumped off the *bank one after another as we came near .
            The tide goes out and leaves the boats lying against the *bank .
            He climbed the steep *bank with the paddle in his hand .
            Ice along the *bank broke under her boots .
            The village lies on the southern *bank of a broad , slow river .
            The crocodile slid down the *bank and vanished .
            Moss and ferns grow thick on a *bank that never sees the sun , close to the spring .
            From the other *bank somebody shouted for the boatman .
            The herd swam the river and came up the *bank dripping .
            The *bank crumbled , and the oak leaned over the stream .
            A wooden landing was built out from the *bank for rowing boats .
        """,
        "money": """
            walk to the *bank and get cash
            She deposited her wages at the *bank every Friday .
            The *bank refused him a loan because he had no steady income .
            Robbers held up the *bank at noon and took forty thousand dollars .
            My father kept his savings in a small *bank on Main Street .
            The *bank charges six per cent interest on a mortgage .
            An officer of the *bank checked the signature on the note .
            When prices fell , the *bank failed and its customers lost their money .
            He opened an account at a Swiss *bank under another name .
            The clerk at the *bank counted the bills twice .
            The company owes the *bank more than it can pay this year .
            A merger would make it the largest *bank in the state .
            The central *bank lowered its rate to help industry .
            You may cash this check at any *bank .
            The treasurer asked the *bank for a statement of all payments .
            Stock of the *bank rose two points on the exchange .
            The farmer borrowed from the *bank to buy a tractor .
            They put the gold into the vault of the *bank .
            The president of the *bank spoke to the shareholders about profits .
            The tax office wrote to his *bank and froze his funds .
            She worked as a teller in a *bank before she married .
            The *bank closes at three , so bring the money in the morning .
            The *bank that is on the other side of that wide road .
            Foreign investors bought a third of the *bank last winter .
            The *bank demanded the house as security for the debt .
            A government *bank lends to farmers at low cost .
            Depositors stood in line outside the *bank to withdraw their money .
            The lawyer sent the papers to the *bank that held the bonds .
            He owned shares in a railroad and a *bank .
            The *bank sent her a new credit card by mail .
            Inspectors found that the *bank had hidden its losses .
            The widow lived on the interest that the *bank paid her .
            The firm moved its payroll to a *bank with branches in every city .
            The dollar fell after the *bank sold its reserves .
            Our *bank offers better terms to people who save .
            The mayor met with a London *bank to finance the subway .
            An economist at the *bank expects prices to rise .
            He transferred ten thousand francs to his brother's *bank .
            The *bank cashier gave me change for a twenty .
            Before the merchant could pay , the *bank had to approve his credit .
            The guard locked the *bank and set the alarm .
            Her pension goes straight to the *bank at the end of the month .
            The *bank will not honor a check without a date .
            The board of the *bank voted to raise the dividend .
        """,
    },
    "play": {
        "game": """
            Chico Ruiz made a spectacular *play on Alusik's grounder .
            The boys *play football behind the school every afternoon .
            The shortstop made a brilliant *play and threw the runner out at first .
            Our team will *play the champions on Saturday .
            The coach drew the *play on a blackboard : a fake , then a long pass .
            She learned to *play tennis from her uncle .
            Rain stopped *play in the second set .
            He will not *play in the final because his knee is hurt .
            On the next *play the quarterback was tackled for a loss of five yards .
            They *play chess in the park for a dollar a game .
            The referee whistled and the *play was called back .
            Mantle was too tired to *play both games of the double-header .
            A double *play ended the inning with the bases loaded .
            The two sides *play again in Chicago next week .
            Rough *play cost the visitors two penalties in the first half .
            Anyone who can *play golf as well as that should turn professional .
            The goalkeeper's best *play was a save in the last minute .
            Let us *play another hand of cards before supper .
            The forward ran the *play perfectly and scored from the left wing .
            You cannot *play hockey on ice as soft as this .
            The crowd cheered a daring *play at home plate .
            We used to *play marbles in the yard until it was dark .
            The halfback fumbled on the first *play of the game .
            The league says a club must *play thirty matches a season .
            Bad weather delayed *play on the golf course for an hour .
            My sister wants to *play second base for the high school .
            It was a trick *play , and the defense never saw the ball .
            Nobody could *play poker with him and win .
            The team practices each *play until all eleven men know it .
            Injured or not , he begged the manager to let him *play the last inning .
            The umpire stood close to the *play and called the runner safe .
            They *play baseball in Japan with the same rules .
            In close *play near the basket the tall center is hard to stop .
            The girls *play volleyball on the beach in summer .
            The pitcher fielded the bunt , an easy *play .
            He has signed to *play for a club in Milan for two seasons .
            With a minute left the captain called a running *play .
            The children *play hide and seek among the trees .
            That interception was the *play that won the championship .
            We *play a round of bridge on Thursdays .
            The ball went out of *play near the corner flag .
            The winners *play Brazil in the next round .
            Fast *play in the infield saved three runs .
            You may *play your queen or your rook , but not both .
        """,
        "theatre": """
            Olivia De Havilland signed to do a Broadway *play for Garson .
            The *play opened in New York to kind reviews .
            She wrote a *play about a queen who loses her throne .
            The actor was asked to *play Hamlet at the Old Vic .
            The curtain fell and the audience called for the author of the *play .
            The second act of the *play takes place in a kitchen .
            He will *play the villain in a new production of Othello .
            Critics said that the *play was too long and badly directed .
            The students are to put on a *play by Moliere in the spring .
            An actress of sixty cannot *play Juliet .
            Every role in the *play was cast before Christmas .
            The hero of the *play dies in the final scene .
            They went to see a *play at the little theater on Elm Street .
            She was chosen to *play Lady Macbeth on the London stage .
            The director cut three speeches from the *play .
            The *play is a comedy in three acts .
            He hoped to *play tragic roles , but he was always given clowns .
            Shaw finished the *play in six weeks .
            The *play ran for two years and then became a film .
            Which of you will *play the ghost , and who the king ?
            The dialogue of the *play is taken from old letters .
            The troupe traveled from town to town with a single *play .
            The producer paid for the scenery and costumes of the *play .
            A famous comedian was hired to *play the butler .
            Her first *play was performed in a barn by amateurs .
            The theme of the *play is guilt , said the author .
            The young man read the *play aloud to the assembled cast .
            No dramatist has written a better *play about war .
            Burton agreed to *play Antony opposite a younger star .
            Tickets for the *play were sold out by Monday .
            The *play closes with a song that the whole chorus sings .
            A miracle *play was acted on the steps of the cathedral .
            He forgot his lines in the middle of the *play .
            The story was made into a *play by her husband , a novelist .
            She refused to *play a maid who has nothing to say .
            The title of the *play comes from a poem by Yeats .
            The audience laughed at the *play , though it was meant as a tragedy .
            The company rehearsed the *play in an empty church hall .
            To *play Cleopatra she had to learn to walk slowly .
            The stage was dark when the *play began .
            The monologue that opens the *play lasts ten minutes .
            Ibsen's *play shocked the public of his day .
            The children will *play the three wise men at the Christmas pageant .
            A drama critic saw the *play twice and praised its ending .
        """,
    },
}
"""Word → sense → sentences, the known half first; a mark stands before the word."""
