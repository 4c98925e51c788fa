"""One test a label of the theory family: what `svag verify` claims holds."""

import pytest

from svag.paper.verify import LABELS, TOPICS, Topic, run_topic


@pytest.mark.parametrize(
    ("number", "topic"), [pytest.param(*one, id="+".join(one[1].labels)) for one in enumerate(TOPICS)]
)
def test_the_checks_of_a_topic_pass(number: int, topic: Topic) -> None:
    checks = run_topic(number, topic, LABELS)
    assert {check.label for check in checks} == set(topic.labels), "a topic checks the labels it names"
    assert [check for check in checks if not check.passed] == []
