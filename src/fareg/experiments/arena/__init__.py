"""Comparisons of methods on tables that others have published."""
