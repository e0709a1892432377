"""How often, and after which pause, a refused message is tried again.

Owns the policy's arithmetic. Used by the broker for NACK and undeliverable bodies, and by bridge
links.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, slots=True)
class RedeliveryPolicy:
    """Six attempts, one second apart, doubled each time, at most a minute.

    Then the message is dead.

    :param maximum_redeliveries: deliveries after the first; -1 is no limit. The default makes six
        attempts in all.
    :param initial_redelivery_delay: milliseconds before the first redelivery.
    :param redelivery_delay: milliseconds before the second, where they do not grow.
    :param use_exponential_back_off: whether each pause is ``back_off_multiplier`` times the one
        before.
    :param maximum_redelivery_delay: milliseconds that no pause exceeds; -1 is no bound.

    The names are those of the SUBSCRIBE headers ``activemq.maximumRedeliveries`` and so on.
    """

    maximum_redeliveries: int = 5
    initial_redelivery_delay: int = 1000
    redelivery_delay: int = 1000
    use_exponential_back_off: bool = True
    back_off_multiplier: float = 2.0
    maximum_redelivery_delay: int = 60_000

    def delay(self, attempts: int) -> int | None:
        """Return the milliseconds to wait after a refused delivery.

        :param attempts: the number of that delivery, from 1.
        :returns: None: the message is dead.
        """
        if 0 <= self.maximum_redeliveries < attempts:
            return None
        if attempts <= 1:
            pause = float(self.initial_redelivery_delay)
        elif self.use_exponential_back_off:
            first = self.initial_redelivery_delay or self.redelivery_delay
            try:
                growth = min(self.back_off_multiplier ** (attempts - 1), 2.0**53)
            except OverflowError:
                growth = 2.0**53
            pause = first * growth
        else:
            pause = float(self.redelivery_delay)
        if self.maximum_redelivery_delay >= 0:
            pause = min(pause, self.maximum_redelivery_delay)
        return int(min(pause, 2**53))


@dataclass(frozen=True, slots=True)
class RedeliveryChanges:
    """What one consumer changes in the policy of its destination.

    The fields of :class:`RedeliveryPolicy`, None for those that it leaves.

    :param keeps_unstored: what it rejects and is dead goes to the dead message queue also where it
        is not persistent. A broker behind the gateway has its own rule.
    """

    maximum_redeliveries: int | None = None
    initial_redelivery_delay: int | None = None
    redelivery_delay: int | None = None
    use_exponential_back_off: bool | None = None
    back_off_multiplier: float | None = None
    maximum_redelivery_delay: int | None = None
    keeps_unstored: bool = True

    def over(self, policy: RedeliveryPolicy) -> RedeliveryPolicy:
        """The policy with these changes."""
        given = {field.name: getattr(self, field.name) for field in fields(policy)}
        return replace(
            policy, **{name: value for name, value in given.items() if value is not None}
        )
