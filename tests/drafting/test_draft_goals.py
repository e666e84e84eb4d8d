"""Goals that chain tools: which result can be an argument of which tool."""

from openagent_jax.drafting import drafting
from tests.drafting.examples import (
    TEXT,
    faults,
    function,
    goals_of,
    openai,
    returning,
    tools_of,
)


class TestChains:
    def test_fields_that_are_arguments_elsewhere_come_first(self):
        many = {"note": TEXT, "size": TEXT, "ticket_id": TEXT}
        tools = [
            returning("find_note", many, owner=TEXT),
            returning("drop_ticket", {"kind": TEXT}, ticket_id=TEXT),
        ]
        draft = drafting.draft(openai(*tools), "chains")
        returns = tools_of(draft)["find_note"]["returns"]
        assert list(returns) == ["ticket_id", "note"]
        assert "find_note_then_drop_ticket" in goals_of(draft)

    def test_a_field_that_is_also_an_argument_is_not_chained(self):
        """The caller knows its value already, so this tool comes last."""
        three = {"ticket_id": TEXT, "size": TEXT, "kind": TEXT}
        tools = [
            returning("touch_ticket", {"ticket_id": TEXT}, ticket_id=TEXT),
            returning("get_ticket", three, ticket_id=TEXT),
        ]
        draft = drafting.draft(openai(*tools), "chains")
        assert list(tools_of(draft)["get_ticket"]["returns"]) == ["size", "kind"]
        assert list(goals_of(draft)) == ["touch_ticket", "get_ticket"]

    def test_create_returns_an_id_and_delete_a_receipt(self):
        tools = [
            function("create_ticket", "", message=TEXT),
            function("delete_ticket", "", reason=TEXT),
            function("show_ticket", "", ticket_id=TEXT),
        ]
        tools = tools_of(drafting.draft(openai(*tools), "chains"))
        assert tools["create_ticket"]["returns"] == {"ticket_id": "ticket_id"}
        assert tools["delete_ticket"]["returns"] == {"receipt": "receipt_number"}

    def test_an_enum_is_not_chained(self):
        level = {"enum": ["low", "high"]}
        tools = [
            returning("find_level", {"level": level, "size": TEXT}, owner=TEXT),
            returning("use_level", {"kind": TEXT}, level=level),
        ]
        assert len(drafting.draft(openai(*tools), "chains").domain["goals"]) == 2

    def test_the_answer_is_an_enum_only_if_there_is_nothing_else(self):
        level = {"enum": ["low", "high"]}
        tool = returning("find_level", {"level": level, "size": TEXT}, owner=TEXT)
        (goal,) = drafting.draft(openai(tool), "chains").domain["goals"]
        assert goal["answer"] == "#0.size"
        assert all("the size" in text for text in goal["phrases"]["train"])

    def test_arguments_of_one_name_and_two_types(self, tmp_path):
        tools = [
            returning("find_seller", {"ticket_id": TEXT}, name=TEXT),
            function("rename_ticket", "", ticket_id=TEXT, name=TEXT),
        ]
        draft = drafting.draft(openai(*tools), "chains")
        goal = goals_of(draft)["find_seller_then_rename_ticket"]
        assert goal["constants"] == {"name": "seller_name", "name_2": "ticket_name"}
        assert faults(tmp_path, draft.domain) == []
