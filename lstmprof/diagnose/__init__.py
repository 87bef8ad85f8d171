"""Why a step takes as long as it does, and what removing a cause would buy."""
