from lossbench.report import figures, sources, writers


def test_a_file_is_a_format():
    assert {"csv", "html", "json", "markdown"} <= set(writers.available())
    assert len(writers.choose(["md", "markdown"])) == 1


def test_every_format_and_figure_and_source_has_its_functions():
    assert all(callable(writer.write) for writer in writers.choose())
    assert all(callable(figure.draw) for figure in figures.available())
    assert all(callable(source.read) and callable(source.accepts) for source in sources.available())
