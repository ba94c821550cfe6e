import pytest

from lossbench import app
from lossbench.errors import ModelError
from lossbench.models.locate import check_available


def test_a_gated_model_out_of_reach_says_how_to_get_it():
    with pytest.raises(ModelError) as caught:
        check_available(app.compose("model=llama2_7b").model)
    message = str(caught.value)
    assert "hf download meta-llama/Llama-2-7b-hf" in message
    assert "model.path=FOLDER" in message
    assert "Llama 2 Community License" in message


def test_the_embedded_model_is_always_available():
    check_available(app.compose().model)
