"""Checks whether a store is whole, refuses it or salvages the rest."""
