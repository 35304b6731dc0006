"""A text coloured by surprise."""

from ensue.look.surprise import surprise_chart


def test_tokens_are_drawn_in_a_font_that_has_the_mark_of_a_space():
    """A generic family may have none: then a whole token is drawn in another font, wider than its box."""
    spec = surprise_chart({"gpt": (["␣the", "␣rain"], [1.0, 2.0])}, title="", caption="").to_dict()
    fonts = [layer["mark"]["font"].split(", ") for layer in spec["layer"] if layer["mark"]["type"] == "text"]
    assert [(one[0], one[-1]) for one in fonts] == [("DejaVu Sans Mono", "monospace")]
