"""Addresses of several queues: turns, what is stored, and rights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.broker.operator.administration import AdministrationRefused
from gateway.broker.properties.administered_properties import PropertyRefused, check
from gateway.broker.properties.destination_properties import DestinationProperties, LimitBehavior
from gateway.broker.properties.pause import Pause
from gateway.broker.properties.settings import BrokerOptions
from gateway.messaging.destination import (
    Destination,
    Queue,
    Topic,
    split_subscription,
    subscription_of,
)
from gateway.messaging.errors import (
    AccessDenied,
    DestinationFull,
    DestinationStopped,
    InvalidDestination,
    MessageRejected,
    MessagingError,
)
from gateway.messaging.message import AddressedHeaders, Headers, Message, VariedHeaders
from gateway.messaging.provider import DUPLICATE_ID, Credentials, Mode, Session, Xid
from tests.gateway.broker.administration import administration, outcome
from tests.gateway.broker.brokers import text
from tests.gateway.broker.stepped_broker import Stepped, texts
from tests.gateway.broker.xa.xa_branches import Branching

ORDERS = Queue("orders")
A, B, C = Queue("a"), Queue("b"), Queue("c")
PRICES = Topic("prices")


@pytest.fixture
def stepped(tmp_path: Path) -> Stepped:
    return Stepped(tmp_path)


def exist(stepped: Stepped, *queues: Destination, address: str = "orders") -> None:
    """Have consumers come to these queues of an address, and go."""
    for queue in queues:
        session = stepped.session()
        stepped.consume(session, queue, address=address)
        stepped.complete(session)
        stepped.close(session)


def waiting(stepped: Stepped, queue: Destination, **spec: Any) -> list[str]:
    """What waits there; it stays."""
    session = stepped.session()
    found = stepped.receive(session, queue, **spec).texts
    stepped.close(session)
    return found


def addressed(queue: Destination, body: str, address: str = "orders") -> Message:
    """A message to a queue of an address."""
    headers = AddressedHeaders(queue)
    headers.address = address
    return Message(headers, body.encode())


def refusal(stepped: Stepped, messages: list[Message], session: Session | None = None) -> Any:
    """Why the first of these is refused."""
    with pytest.raises(MessageRejected) as rejected:
        (session or stepped.session()).send(messages)
    return rejected.value.cause


# --- turns


def test_queues_take_turns_in_the_order_in_which_they_were_made(stepped: Stepped) -> None:
    exist(stepped, B, A)
    stepped.send(texts(ORDERS, range(3)))
    stepped.send_each(texts(ORDERS, range(3, 6)))
    assert waiting(stepped, B) == ["0", "2", "4"]
    assert waiting(stepped, A) == ["1", "3", "5"]
    assert stepped.broker.find(ORDERS) is None


def test_a_message_is_one_of_its_queue_whatever_varies(stepped: Stepped) -> None:
    exist(stepped, A)
    repeated = Headers(ORDERS, properties={"x": "1"}, extras=(("a-b", "c"),))
    varied = VariedHeaders(repeated, b"y:2\n", 1, repeated.octets + 2)
    stepped.send([Message(varied, b"1"), Message(varied, b"2"), text(ORDERS, "3")])
    found = stepped.receive(stepped.session(), A).messages
    assert [each.headers.destination for each in found] == [A, A, A]
    assert dict(found[0].headers.properties) == {"x": "1", "y": "2"}
    assert found[1].headers.extras == (("a-b", "c"),)
    repeats = [each.headers.repeated for each in found]
    assert repeats[0] is repeats[1] is not None


def test_queues_with_a_consumer_that_wants_it_come_first(stepped: Stepped) -> None:
    exist(stepped, A, B, C)
    session = stepped.session()
    inbox = stepped.consume(session, B, selector="color = 'red'")
    for color in ("red", "blue", "red", "blue"):
        stepped.send([text(ORDERS, color, properties={"color": color})])
    assert inbox.texts == ["red", "red"]
    # Those that no consumer wants have their turns among all.
    assert len(waiting(stepped, A)) + len(waiting(stepped, C)) == 2


def test_the_queue_of_the_addresss_name_takes_turns_with_the_others(stepped: Stepped) -> None:
    stepped.send([text(ORDERS, "before")])
    exist(stepped, A)
    stepped.send_each(texts(ORDERS, "1234"))
    assert waiting(stepped, ORDERS) == ["before", "1", "3"]
    assert waiting(stepped, A) == ["2", "4"]


def test_a_message_to_that_queue_of_the_address_is_for_it_alone(stepped: Stepped) -> None:
    exist(stepped, ORDERS, A)
    stepped.send_each([addressed(ORDERS, body) for body in "12"])
    assert (waiting(stepped, ORDERS), waiting(stepped, A)) == (["1", "2"], [])


def test_what_was_chosen_stays_where_an_address_has_the_queues_name(stepped: Stepped) -> None:
    exist(stepped, A)
    exist(stepped, B, address="a")
    session = stepped.session(Mode.TRANSACTED)
    stepped.send([text(ORDERS, "1"), addressed(A, "2"), text(A, "3")], session)
    assert stepped.commit(session).well
    stepped.run_until_idle()
    # The queue of that name has another address.
    assert (waiting(stepped, A), waiting(stepped, B)) == (["1", "2"], ["3"])


def test_what_it_was_chosen_for_stays_there_at_commit(stepped: Stepped) -> None:
    exist(stepped, ORDERS, A)
    session = stepped.session(Mode.TRANSACTED)
    stepped.send_each(texts(ORDERS, range(4)), session)
    assert stepped.commit(session).well
    stepped.run_until_idle()
    assert (waiting(stepped, ORDERS), waiting(stepped, A)) == (["0", "2"], ["1", "3"])


def test_a_queue_of_that_name_that_comes_later_takes_turns(stepped: Stepped) -> None:
    exist(stepped, A)
    inbox = stepped.consume(stepped.session(), ORDERS)
    other = stepped.consume(stepped.session(), A)
    stepped.send_each(texts(ORDERS, "1234"))
    assert sorted([len(inbox.texts), len(other.texts)]) == [2, 2]


def test_an_address_of_the_queues_own_name_is_none(stepped: Stepped) -> None:
    exist(stepped, A, address="a")
    assert stepped.broker.addresses.by_name == {}


def test_a_queue_keeps_the_address_that_it_has(stepped: Stepped) -> None:
    exist(stepped, A)
    exist(stepped, A, address="others")
    stepped.send([text(ORDERS, "1"), text(Queue("others"), "2")])
    assert waiting(stepped, A) == ["1"]


def test_a_queue_that_use_has_made_before_gets_the_address(stepped: Stepped) -> None:
    stepped.send([text(A, "before")])
    exist(stepped, A, B)
    stepped.send_each(texts(ORDERS, "12"))
    assert waiting(stepped, A) == ["before", "1"]


def test_send_to_a_queue_of_an_address_makes_it_one(stepped: Stepped) -> None:
    stepped.send([addressed(A, "1")])
    stepped.send_each(texts(ORDERS, "23"))
    assert waiting(stepped, A) == ["1", "2", "3"]
    exist(stepped, B)
    stepped.send([addressed(A, "4")])
    assert waiting(stepped, A)[-1] == "4"


def test_a_name_that_no_address_can_have_is_refused(stepped: Stepped) -> None:
    assert isinstance(refusal(stepped, [addressed(A, "1", "a.*")]), InvalidDestination)
    assert stepped.broker.find(A) is None
    with pytest.raises(InvalidDestination):
        exist(stepped, A, address="mq.own")


def test_queues_that_go_take_no_turns(stepped: Stepped) -> None:
    exist(stepped, A, B, C)
    stepped.send([text(ORDERS, "1")])
    for queue in (A, C):
        outcome(stepped, administration(stepped).destroy("queue", queue.name))
    stepped.send_each(texts(ORDERS, "23"))
    assert waiting(stepped, B) == ["2", "3"]
    outcome(stepped, administration(stepped).destroy("queue", "b"))
    # Then it is a name like any other.
    stepped.send([text(ORDERS, "4")])
    assert waiting(stepped, ORDERS) == ["4"]


def test_an_unused_queue_is_reaped_and_made_anew_without_its_address(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path, BrokerOptions(reap_time=10))
    exist(stepped, A)
    # Its row stays for the id that is remembered.
    stepped.send([text(A, "1", properties={DUPLICATE_ID: "k"})])
    session = stepped.session()
    inbox = stepped.receive(session, A)
    stepped.acknowledge_through(inbox, 1)
    stepped.close(session)
    stepped.later(30, 3)
    assert stepped.broker.find(A) is None
    stepped.restart()
    stepped.send([text(ORDERS, "2")])
    assert waiting(stepped, ORDERS) == ["2"]
    exist(stepped, A, address="others")
    stepped.restart()
    stepped.send([text(Queue("others"), "3")])
    assert waiting(stepped, A) == ["3"]


# --- what is stored


def test_the_addresss_queues_survive_a_crash(stepped: Stepped) -> None:
    exist(stepped, A, B)
    stepped.restart()
    stepped.send_each(texts(ORDERS, "12"))
    assert waiting(stepped, A) == ["1"]
    assert waiting(stepped, B) == ["2"]
    found = stepped.broker.find(A)
    assert found is not None
    assert found.auto_created


def test_a_paused_queue_keeps_its_address_at_a_restart(stepped: Stepped) -> None:
    exist(stepped, A)
    outcome(stepped, administration(stepped).pause("queue", "a", Pause.CONSUMERS))
    stepped.restart()
    found = stepped.broker.find(A)
    assert found is not None
    assert (found.pause, found.properties.address) == (Pause.CONSUMERS, "orders")


# --- what an administrator gives


def test_an_administrator_gives_a_queue_its_address_and_takes_it(stepped: Stepped) -> None:
    admin = administration(stepped)
    outcome(stepped, admin.create("queue", "a", {"address": "orders"}))
    stepped.restart()
    admin = administration(stepped)
    stepped.send([text(ORDERS, "1")])
    assert waiting(stepped, A) == ["1"]
    # A client's word changes nothing that an administrator has made.
    exist(stepped, A, address="others")
    outcome(stepped, admin.update("queue", "a", {"address": "others"}))
    stepped.send([text(Queue("others"), "2"), text(ORDERS, "3")])
    assert waiting(stepped, A) == ["1", "2"]
    outcome(stepped, admin.update("queue", "a", {}, ["address"]))
    stepped.send([text(Queue("others"), "4")])
    assert waiting(stepped, A) == ["1", "2"]


def test_update_keeps_the_address_that_use_has_given(stepped: Stepped) -> None:
    exist(stepped, A)
    outcome(stepped, administration(stepped).update("queue", "a", {"maxNumMsgs": "5"}))
    stepped.restart()
    stepped.send([text(ORDERS, "1")])
    assert waiting(stepped, A) == ["1"]


def test_settings_give_an_address(tmp_path: Path) -> None:
    made = ((A, DestinationProperties(address="orders")),)
    stepped = Stepped(tmp_path, BrokerOptions(reap_time=0, destinations=made))
    administration(stepped)
    stepped.send([text(ORDERS, "1")])
    assert waiting(stepped, A) == ["1"]


def test_what_an_address_can_be(stepped: Stepped) -> None:
    for destination, value in ((A, "a"), (PRICES, "orders"), (A, "x.*")):
        with pytest.raises(PropertyRefused):
            check(destination, {"address": value})
    with pytest.raises(AdministrationRefused):
        outcome(stepped, administration(stepped).create("topic", "t", {"address": "orders"}))


def test_who_asks_about_an_address_hears_of_its_queues(stepped: Stepped) -> None:
    exist(stepped, A, B)
    with pytest.raises(AdministrationRefused) as refused:
        administration(stepped).destination("queue", "orders")
    assert str(refused.value) == "there is no queue 'orders'; it is the address of a, b"


# --- limits, pauses and damage


def test_the_queue_whose_turn_it_is_refuses_at_its_limit(tmp_path: Path) -> None:
    limit = DestinationProperties(
        max_num_msgs=1, limit_behavior=LimitBehavior.REJECT_NEWEST, address="orders"
    )
    options = BrokerOptions(reap_time=0, destinations=((A, limit), (B, limit)))
    stepped = Stepped(tmp_path, options)
    administration(stepped)
    stepped.send_each(texts(ORDERS, "12"))
    assert isinstance(refusal(stepped, texts(ORDERS, "3")), DestinationFull)
    assert (waiting(stepped, A), waiting(stepped, B)) == (["1"], ["2"])


def test_what_comes_before_a_refused_message_can_be_sent_again(tmp_path: Path) -> None:
    limit = DestinationProperties(
        max_num_msgs=1, limit_behavior=LimitBehavior.REJECT_NEWEST, address="orders"
    )
    options = BrokerOptions(reap_time=0, destinations=((A, limit), (B, limit)))
    rules = "queue.a.produce.deny.user=*\nqueue.b.produce.deny.user=*\n"
    stepped = Stepped(tmp_path, options, rules=rules)
    administration(stepped)
    run, session = texts(ORDERS, "123"), stepped.session()
    with pytest.raises(MessageRejected) as rejected:
        session.send(run)
    assert rejected.value.index == 2
    stepped.send(run[:2], session)
    assert (waiting(stepped, A), waiting(stepped, B)) == (["1"], ["2"])


def test_paused_queues_are_passed_over_while_others_take(stepped: Stepped) -> None:
    exist(stepped, A, B)
    outcome(stepped, administration(stepped).pause("queue", "a", Pause.PRODUCERS))
    stepped.send_each(texts(ORDERS, "12"))
    assert waiting(stepped, B) == ["1", "2"]
    outcome(stepped, administration(stepped).pause("queue", "b", Pause.PRODUCERS))
    assert "paused" in str(refusal(stepped, texts(ORDERS, "3")))


def test_a_damaged_queue_is_passed_over(stepped: Stepped) -> None:
    exist(stepped, A, B)

    def stop(queue: Destination) -> None:
        found = stepped.broker.find(queue)
        assert found is not None
        found.stop(DestinationStopped(queue))

    stop(A)
    stepped.send_each(texts(ORDERS, "12"))
    assert waiting(stepped, B) == ["1", "2"]
    stop(B)
    assert isinstance(refusal(stepped, texts(ORDERS, "3")), DestinationStopped)


# --- transactions, duplicates, later delivery


def test_in_a_transaction_the_queue_is_chosen_at_send(stepped: Stepped) -> None:
    exist(stepped, A, B)
    session = stepped.session(Mode.TRANSACTED)
    stepped.send([text(ORDERS, "in it")], session)
    stepped.send([text(ORDERS, "outside")])
    assert stepped.commit(session).well
    stepped.run_until_idle()
    assert waiting(stepped, A) == ["in it"]
    assert waiting(stepped, B) == ["outside"]


def test_a_transaction_ends_well_though_its_queue_has_gone(stepped: Stepped) -> None:
    exist(stepped, A)
    session = stepped.session(Mode.TRANSACTED)
    stepped.send([text(ORDERS, "1")], session)
    outcome(stepped, administration(stepped).destroy("queue", "a"))
    assert stepped.commit(session).well
    stepped.run_until_idle()
    assert waiting(stepped, A) == ["1"]


def test_what_branches_send_takes_turns(stepped: Stepped) -> None:
    exist(stepped, A, B)
    branching, xid = Branching(stepped), Xid(1, b"g", b"b")
    branching.start(xid)
    stepped.send(texts(ORDERS, "12"), branching.session)
    branching.end(xid)
    branching.prepare(xid)
    branching.commit(xid)
    assert (waiting(stepped, A), waiting(stepped, B)) == (["1"], ["2"])


def test_what_repeats_a_duplicate_id_goes_where_that_went(stepped: Stepped) -> None:
    exist(stepped, A, B)

    def named(id: str, body: str) -> Message:
        return text(ORDERS, body, properties={DUPLICATE_ID: id})

    stepped.send([named("k", "1"), named("k", "again"), named("l", "2")])
    stepped.send_each([named("k", "later"), named("l", "later")])
    stepped.restart()
    stepped.send_each([named("l", "after"), named("k", "after")])
    assert (waiting(stepped, A), waiting(stepped, B)) == (["1"], ["2"])
    session = stepped.session(Mode.TRANSACTED)
    for body in ("one", "two"):
        stepped.send([named("m", body)], session)
    assert stepped.commit(session).well
    stepped.run_until_idle()
    assert "two" not in waiting(stepped, A) + waiting(stepped, B)


# --- dead messages


def test_a_dead_message_tells_its_address(stepped: Stepped) -> None:
    exist(stepped, A)
    stepped.send([text(ORDERS, "1", expires=1)])
    waiting(stepped, A)
    selector = "_AMQ_ORIG_ADDRESS = 'orders' AND _AMQ_ORIG_QUEUE = 'a'"
    assert waiting(stepped, Queue("mq.sys.dmq"), selector=selector) == ["1"]


# --- access


def as_user(stepped: Stepped, user: str) -> Session:
    """A session of another user, who is no administrator."""
    made: list[Any] = []
    stepped.provider.connect(Credentials(user, user, "192.0.2.1"), None, print).addCallback(
        made.append
    )
    session: Session = made[0].session(Mode.AUTO)
    return session


def test_to_make_a_queue_of_an_address_needs_the_right_to_receive_from_it(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path, rules="queue.orders.consume.deny.user=mallory\n")
    mallory = as_user(stepped, "mallory")
    with pytest.raises(AccessDenied):
        stepped.consume(mallory, A, address="orders")
    assert isinstance(refusal(stepped, [addressed(A, "1")], mallory), AccessDenied)
    assert stepped.broker.find(A) is None
    assert stepped.broker.addresses.by_name == {}


def test_a_queue_of_others_gets_no_address_from_who_may_not_send_to_it(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path, rules="queue.a.produce.deny.user=mallory\n")
    stepped.send([text(A, "theirs")])
    inbox = stepped.receive(as_user(stepped, "mallory"), A, address="orders")
    assert inbox.texts == ["theirs"]
    assert stepped.broker.addresses.by_name == {}


def test_who_may_not_send_to_a_queue_makes_it_none_of_an_address(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path, rules="queue.a.produce.deny.user=mallory\n")
    mallory = as_user(stepped, "mallory")
    # Else all who may send to that address might send to the queue from then on.
    with pytest.raises(AccessDenied):
        stepped.consume(mallory, A, address="evil")
    assert stepped.broker.find(A) is None
    assert isinstance(refusal(stepped, [text(A, "forged")], mallory), AccessDenied)


def test_to_send_to_an_administrators_queues_needs_no_right_to_make_some(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path, rules="queue.create.deny.user=bob\nqueue.a.produce.deny.user=bob\n")
    admin = administration(stepped)
    outcome(stepped, admin.create("queue", "a", {"address": "orders"}))
    bob = as_user(stepped, "bob")
    stepped.send_each([text(ORDERS, "1"), text(A, "2")], bob)
    assert waiting(stepped, A) == ["1", "2"]
    with pytest.raises(AccessDenied):
        stepped.consume(bob, ORDERS)


def test_a_right_goes_with_the_address_that_gave_it(tmp_path: Path) -> None:
    rules = "queue.a.produce.deny.user=bob\nqueue.other.produce.deny.user=bob\n"
    stepped = Stepped(tmp_path, rules=rules)
    exist(stepped, A)
    bob = as_user(stepped, "bob")
    stepped.send([text(A, "1")], bob)
    outcome(stepped, administration(stepped).update("queue", "a", {"address": "other"}))
    assert isinstance(refusal(stepped, [text(A, "2")], bob), AccessDenied)
    assert waiting(stepped, A) == ["1"]


def test_a_transaction_to_an_address_ends_well_though_its_queue_has_gone(tmp_path: Path) -> None:
    stepped = Stepped(
        tmp_path, rules="queue.a.produce.deny.user=bob\nqueue.*.consume.deny.user=bob\n"
    )
    exist(stepped, A)
    made: list[Any] = []
    stepped.provider.connect(Credentials("bob", "bob", "192.0.2.1"), None, print).addCallback(
        made.append
    )
    session = made[0].session(Mode.TRANSACTED)
    stepped.send([text(ORDERS, "1")], session)
    outcome(stepped, administration(stepped).destroy("queue", "a"))
    assert stepped.commit(session).well
    stepped.run_until_idle()
    # It is one of the address again.
    stepped.send([text(ORDERS, "2")])
    assert waiting(stepped, A) == ["1", "2"]


def test_who_may_send_to_an_address_may_send_to_its_queues(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path, rules="queue.a.produce.deny.user=bob\n")
    bob = as_user(stepped, "bob")
    assert isinstance(refusal(stepped, [text(A, "0")], bob), AccessDenied)
    exist(stepped, A)
    stepped.send_each([text(ORDERS, "1"), text(A, "2")], bob)
    assert waiting(stepped, A) == ["1", "2"]


def test_who_may_not_send_to_an_address_has_no_turn(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path, rules="queue.orders.produce.deny.user=bob\n")
    exist(stepped, A)
    assert isinstance(refusal(stepped, [text(ORDERS, "1")], as_user(stepped, "bob")), AccessDenied)
    assert waiting(stepped, A) == []


# --- one subscription of a topic


def subscribe(stepped: Stepped, name: str, **spec: Any) -> Any:
    return stepped.consume(
        stepped.session(), PRICES, durable_name=name, shared=True, redefines=False, **spec
    )


def test_a_message_for_one_subscription_comes_to_that_alone(stepped: Stepped) -> None:
    one, two = subscribe(stepped, "one"), subscribe(stepped, "two")
    whole = stepped.consume(stepped.session(), PRICES)
    stepped.send([text(subscription_of(PRICES, "one"), "1"), text(PRICES, "2")])
    assert (one.texts, two.texts, whole.texts) == (["1", "2"], ["2"], ["2"])
    assert [each.headers.destination for each in one.messages] == [PRICES, PRICES]


def test_it_waits_there_and_survives_a_crash(stepped: Stepped) -> None:
    for name in ("one", "two"):
        stepped.complete(subscribe(stepped, name).consumer.session)
    stepped.restart()
    session = stepped.session()
    stepped.send([text(subscription_of(PRICES, "one"), "1")], session)
    assert stepped.complete(session).well
    stepped.restart()
    one, two = subscribe(stepped, "one"), subscribe(stepped, "two")
    stepped.run_until_idle()
    assert (one.texts, two.texts) == (["1"], [])


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_it_comes_with_the_commit_of_its_transaction(stepped: Stepped, ends: str) -> None:
    one, two = subscribe(stepped, "one"), subscribe(stepped, "two")
    session = stepped.session(Mode.TRANSACTED)
    stepped.send([text(subscription_of(PRICES, "one"), "1")], session)
    assert one.texts == []
    if ends == "commit":
        assert stepped.commit(session).well
    else:
        session.rollback(lambda error: None)
    stepped.run_until_idle()
    assert (one.texts, two.texts) == (["1"] * (ends == "commit"), [])


def test_its_selector_holds(stepped: Stepped) -> None:
    one = subscribe(stepped, "one", selector="n = 1")
    target = subscription_of(PRICES, "one")
    stepped.send([text(target, str(n), properties={"n": n}) for n in (1, 2)])
    assert one.texts == ["1"]


@pytest.mark.parametrize("name", ["none", "own"])
def test_without_such_a_subscription_it_is_refused(stepped: Stepped, name: str) -> None:
    subscribe(stepped, "one")
    # One of a client identifier is no queue that Artemis would call so.
    stepped.consume(stepped.session(client_id="c"), PRICES, durable_name="own")
    cause: MessagingError = refusal(stepped, [text(subscription_of(PRICES, name), "1")])
    assert isinstance(cause, InvalidDestination)
    assert f"no queue '{name}'" in str(cause)
    assert stepped.broker.refusals.of(PRICES)


def test_it_cannot_come_later(stepped: Stepped) -> None:
    subscribe(stepped, "one")
    sender = as_user(stepped, "guest")
    later = text(subscription_of(PRICES, "one"), "1", properties={"AMQ_SCHEDULED_DELAY": "1000"})
    assert "later" in str(refusal(stepped, [later], sender))


def test_it_is_not_copied_to_the_queues_of_a_virtual_topic(stepped: Stepped) -> None:
    topic, queue = Topic("VirtualTopic.x"), Queue("Consumer.a.VirtualTopic.x")
    stepped.consume(stepped.session(), queue)
    one = stepped.consume(stepped.session(), topic, durable_name="one", shared=True)
    stepped.send([text(subscription_of(topic, "one"), "1")])
    assert one.texts == ["1"]
    found = stepped.broker.find(queue)
    assert found is not None
    assert found.count == 0


def test_only_topics_have_subscriptions() -> None:
    assert split_subscription(subscription_of(PRICES, "one")) == (PRICES, "one")
    assert split_subscription(PRICES) == (PRICES, "")
    odd = Queue("a\x1fb")
    assert split_subscription(odd) == (odd, "")
